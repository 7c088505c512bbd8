"""What all tests share: laws have no deadline, since a busy machine breaks none, and draw the same cases every time.

``pytest --hypothesis-profile explore`` draws new ones.
"""

from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("semidp", deadline=None, derandomize=True)
settings.load_profile("semidp")
