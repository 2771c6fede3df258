"""What the patterns raise beside the errors of `azure.core.exceptions`."""


class PatternError(Exception):
    """Any error of a pattern that is none of the service."""


class LockNotAcquired(PatternError):
    """Another client holds the lock."""


class LockLost(PatternError):
    """The lock is not this client's any more: its time was over, and another client took it."""


class ValueDamaged(PatternError):
    """Parts of a large value are missing or are not those that were stored."""


class OutcomeUnknown(PatternError):
    """The write may have been carried out or not, and what is stored now cannot tell: others have written since."""


class AnotherSize(PatternError):
    """A counter of this name has another number of shards, which cannot change."""


class NotCreated(PatternError):
    """There is no counter of this name."""


class Conflicts(PatternError):
    """Other clients changed the entity each time that this one tried."""
