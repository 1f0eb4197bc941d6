"""Are values written as a person reads them, and as a terminal may show them?"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from perdure import Actor, Entry, Provenance
from perdure.surfaces.cli import wording

EID = "0190b0d5-6d2c-7c11-8b7e-6c2f0a9d3e55"
ADA = {"kind": "human", "id": "ada@example.com"}
AT = datetime(2030, 1, 31, 12, 0, 5, 250_000, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.3504, "350 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (7500, "2 h 5 min"),
        (86_400 * 3 + 60, "3 d"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert wording.duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"),
        (0.9, "now"),
        (1, "1 s ago"),
        (119, "1 min ago"),
        (7200, "2 h ago"),
        (9e5, "10 d ago"),
    ],
)
def test_what_is_past_has_one_unit(seconds: float, text: str) -> None:
    assert wording.ago(AT - timedelta(seconds=seconds), AT) == text


def test_instants_are_in_utc() -> None:
    assert wording.instant(AT) == "2030-01-31T11:00:05.250000Z"
    assert wording.instant(None) == ""
    assert wording.calendar(AT) == "2030-01-31 11:00:05Z"
    assert wording.clock(AT, fine=False) == "11:00:05Z"
    assert wording.clock(AT, fine=True) == "11:00:05.250Z"
    assert wording.later(AT, AT, fine=False) == "11:00:05Z"
    assert wording.later(AT, AT - timedelta(hours=12), fine=False) == "2030-01-31 11:00:05Z"


@pytest.mark.parametrize(
    ("count", "text"), [(None, ""), (512, "512 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes(count: int | None, text: str) -> None:
    assert wording.size(count) == text


@pytest.mark.parametrize("text", ["a\x1b[31mb", "a\tb", "a\nb", "\x9b", "\u202e", "\ud800", "\x7f"])
def test_nothing_that_steers_a_terminal_is_printable(text: str) -> None:
    shown = wording.printable(text)
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == text
    assert wording.printable(json.dumps(text, ensure_ascii=False)) == f'"{shown}"'


def test_what_is_harmless_stays() -> None:
    assert wording.printable("Zoë 東京 ✓") == "Zoë 東京 ✓"
    assert wording.printable("a\nb", keep="\n") == "a\nb"


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("execution.started", {"args": [["INV-7", 2], {"fast": True}]}, '"INV-7", 2, fast=true'),
        ("execution.resumed", {"reason": "recovery", "epoch": 2}, "recovery"),
        (
            "execution.suspended",
            {"on": [f"channel:{EID}.a", "channel:a", "timer:root/b#0", f"child:{EID}"]},
            f"channel:a, channel:a (global), timer:root/b#0, child:{EID}",
        ),
        ("execution.suspended", {"on": ["operator"], "reason": "why"}, "operator  why"),
        ("execution.completed", {"value": None}, "null"),
        ("execution.failed", {"error_type": "E", "message": "m", "traceback": "t"}, "E: m"),
        (
            "frame.failed",
            {"error_type": "E", "message": "m", "retryable": True, "retry_at": AT},
            "E: m  retry at 2030-01-31T11:00:05.250000Z",
        ),
        ("frame.failed", {"error_type": "E", "message": "m", "retryable": False}, "E: m"),
        (
            "frame.suspended",
            {"on": "timer:root/a#0", "deadline": AT},
            "timer  until 2030-01-31T11:00:05.250000Z",
        ),
        (
            "frame.fulfilled",
            {"on": f"channel:{EID}.answer", "message": {"payload": [1], "sent_by": ADA}},
            "channel:answer  [1] from human:ada@example.com",
        ),
        (
            "frame.fulfilled",
            {"on": "channel:rates", "message": {"payload": [1], "sent_by": ADA}},
            "channel:rates (global)  [1] from human:ada@example.com",
        ),
        (
            "frame.fulfilled",
            {"on": f"child:{EID}", "message": {"payload": {"status": "completed", "value": [1]}}},
            f"child:{EID}  completed [1]",
        ),
        (
            "frame.fulfilled",
            {
                "on": f"child:{EID}",
                "message": {"payload": {"status": "failed", "error_type": "E", "message": "m"}},
            },
            f"child:{EID}  failed E: m",
        ),
        ("execution.cancelling", {"by": ADA}, "by human:ada@example.com"),
        ("execution.cancelled", {"by": ADA, "reason": "why"}, "by human:ada@example.com  why"),
        ("execution.terminated", {"by": ADA, "reason": "why"}, "by human:ada@example.com  why"),
        ("execution.migrated", {"from_version": "1", "version": "2"}, "1 → 2"),
        (
            "execution.forked",
            {"origin": EID, "fid": "root/a#0", "overrides": {"root/b#0": "x"}},
            f'of {EID} at root/a#0  root/b#0="x"',
        ),
        ("execution.completed", {"value": None, "continued_as": EID}, f"continued as {EID}"),
        ("frame.abandoned", {"reason": "gather"}, "gather"),
        ("frame.invented", {"fields": [1]}, '{"fields":[1]}'),
    ],
)
def test_an_entry_has_short_facts(kind: str, payload: dict[str, object], text: str) -> None:
    provenance = Provenance(Actor.worker("w"), None, None, 0, AT.astimezone(UTC))
    entry = Entry(1, kind, "root/a#0", AT, 1, 1, payload, provenance, UUID(EID))
    assert wording.facts(entry) == text
