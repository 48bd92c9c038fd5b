"""The list in docs/job-systems/redis-endpoint.md: versions and what the tests of each system show.

Versions come from the files that pin them, and every entry names a test. generated.py writes the
list into the page.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "job-systems" / "redis-endpoint.md"
REDIS: Final = ROOT / "tests" / "redis"
FEATURES: Final = (
    "jobs and results",
    "jobs for later",
    "retries",
    "schedules",
    "priorities",
    "an id taken once",
    "several workers",
    "a killed worker",
)
WIDTH: Final = 119
_PIP: Final = (REDIS / "requirements-older.txt", REDIS / "requirements.txt")
"""The newer version of a package that both name counts."""
_NPM: Final = REDIS / "other_languages" / "package.json"
_DEBIAN: Final = {"sidekiq": "6.4.1"}
"""What Debian 12 has; tests/redis/get_sidekiq.sh installs it."""


@dataclass(frozen=True)
class System:
    """A job system: the packages whose versions count, and its tests by what they show.

    `words` say what is special about some.
    """

    name: str
    packages: tuple[str, ...]
    file: str
    tests: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where its tests are."""
        return REDIS / self.file


SYSTEMS: Final = (
    System(
        "Celery",
        ("celery", "kombu"),
        "job_systems/test_celery.py",
        {
            "jobs and results": "test_results_groups_and_chords",
            "jobs for later": "test_countdown_and_retry_are_not_early",
            "retries": "test_countdown_and_retry_are_not_early",
            "schedules": "test_beat_sends_tasks_again_and_again",
            "priorities": "test_the_lowest_priority_runs_first",
            "several workers": "test_workers_side_by_side_run_each_task_once",
            "a killed worker": "test_the_task_of_a_killed_worker_runs_again",
        },
    ),
    System(
        "RQ",
        ("rq",),
        "job_systems/test_rq.py",
        {
            "jobs and results": "test_jobs_run_in_order_and_keep_their_results",
            "jobs for later": "test_jobs_for_later_are_not_early",
            "retries": "test_a_retry_later",
            "priorities": "test_the_order_of_queues_and_of_what_depends",
            "several workers": "test_workers_side_by_side_run_each_job_once",
        },
    ),
    System(
        "dramatiq",
        ("dramatiq",),
        "job_systems/test_dramatiq.py",
        {
            "jobs and results": "test_results",
            "jobs for later": "test_delays_and_retries_are_not_early",
            "retries": "test_delays_and_retries_are_not_early",
        },
    ),
    System(
        "Huey",
        ("huey",),
        "job_systems/test_huey.py",
        {
            "jobs and results": "test_results",
            "jobs for later": "test_tasks_for_later_are_not_early",
            "retries": "test_retries",
            "priorities": "test_priorities",
        },
    ),
    System(
        "arq",
        ("arq",),
        "older_client/test_arq.py",
        {
            "jobs and results": "test_results_and_failures",
            "jobs for later": "test_delayed_jobs_are_not_early",
            "retries": "test_retries_wait_and_a_key_is_taken_once",
            "schedules": "test_cron",
            "an id taken once": "test_retries_wait_and_a_key_is_taken_once",
            "several workers": "test_workers_side_by_side_run_each_job_once",
        },
    ),
    System(
        "taskiq",
        ("taskiq", "taskiq-redis"),
        "job_systems/test_taskiq.py",
        {
            "jobs and results": "test_results",
            "jobs for later": "test_scheduled_tasks_are_not_early",
            "schedules": "test_scheduled_tasks_are_not_early",
        },
    ),
    System(
        "BullMQ",
        ("bullmq", "ioredis"),
        "job_systems/test_bullmq.py",
        {
            "jobs and results": "test_results_and_failures",
            "jobs for later": "test_delayed_jobs_are_not_early_and_an_id_is_taken_once",
            "retries": "test_a_retry_later",
            "schedules": "test_a_flow_and_a_scheduler",
            "priorities": "test_priorities",
            "an id taken once": "test_delayed_jobs_are_not_early_and_an_id_is_taken_once",
            "a killed worker": "test_the_job_of_a_killed_worker_runs_again",
        },
    ),
    System(
        "Sidekiq",
        ("sidekiq",),
        "job_systems/test_sidekiq.py",
        {
            "jobs and results": "test_jobs_run_in_order",
            "jobs for later": "test_scheduled_jobs_are_not_early",
            "retries": "test_a_retry_later",
            "a killed worker": "test_the_job_of_a_killed_worker_is_lost",
        },
        {"a killed worker": "its job is lost, as on Redis"},
    ),
)


def listing() -> str:
    """The list in Markdown."""
    entries = []
    for system in SYSTEMS:
        link = f"[{system.name}](#{system.name.lower()})"
        shown = [
            f"{feature} ({system.words[feature]})" if feature in system.words else feature
            for feature in FEATURES
            if feature in system.tests
        ]
        entry = f"- {link}, {', '.join(map(version, system.packages))}: {', '.join(shown)}"
        entries += textwrap.wrap(entry, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(entries)


def version(package: str) -> str:
    """A package with the version that the tests run, as it is pinned."""
    pinned = {**_DEBIAN, **json.loads(_NPM.read_text())["dependencies"]}
    for file in _PIP:
        pinned |= dict(re.findall(r"^([\w-]+)==(\S+)$", file.read_text(), re.MULTILINE))
    return f"{package} {pinned[package]}"
