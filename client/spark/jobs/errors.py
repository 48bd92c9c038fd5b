"""What stops a job."""


class JobError(Exception):
    """A job cannot be done as it was asked for; the text says what to change."""
