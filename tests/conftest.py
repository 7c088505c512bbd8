"""What all tests share: laws have no deadline of their own, since a busy machine breaks none."""

from hypothesis import settings

settings.register_profile("semidp", deadline=None)
settings.load_profile("semidp")
