"""What statistics of a private outcome share: requests, published columns, intervals, spread."""
