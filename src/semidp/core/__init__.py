"""What every room uses: exact numbers, margins, features and tables, dataspaces, tradeoff curves,
guarantees.

No statistic lives here, no noise is drawn, and no file or database is opened.
"""
