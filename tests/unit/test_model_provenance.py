"""Actors and provenance: a person is an email address, and every value survives the store."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument
from perdure.model.provenance import Actor, Code, Provenance, Site
from tests.unit.strategies import TEXT

NAMES = TEXT.filter(bool)
EMAIL = st.emails()
ACTORS = st.one_of(
    EMAIL.map(Actor.human),
    NAMES.map(Actor.system),
    NAMES.map(Actor.schedule),
    NAMES.map(Actor.worker),
    st.builds(Actor.system, NAMES, on_behalf_of=EMAIL),
)


def test_each_constructor_gives_its_kind() -> None:
    assert Actor.human("ada@example.com") == Actor("human", "ada@example.com")
    assert Actor.system("cron") == Actor("system", "cron")
    assert Actor.schedule("nightly") == Actor("schedule", "nightly")
    assert Actor.worker("w-1") == Actor("worker", "w-1")
    acting = Actor.system("bot", on_behalf_of="ada@example.com")
    assert (acting.kind, acting.id, acting.on_behalf_of) == ("system", "bot", "ada@example.com")


@pytest.mark.parametrize(
    "email", ["ada", "", "@", "ada@", "@example.com", "a@b@c", "a da@b", "a@b\n", "\ud800@b"]
)
def test_a_person_is_an_email_address(email: str) -> None:
    with pytest.raises(InvalidArgument):
        Actor.human(email)
    with pytest.raises(InvalidArgument):
        Actor("human", email)
    with pytest.raises(InvalidArgument, match="email address"):
        Actor.system("bot", on_behalf_of=email)
    with pytest.raises(InvalidArgument, match="email address"):
        Actor("human", "ada@example.com", email)


def test_the_error_names_the_refused_address() -> None:
    with pytest.raises(InvalidArgument, match="'ada' is not an email address"):
        Actor.human("ada")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("robot", "x"),
        (None, "x"),
        (["human"], "x"),
        ("system", ""),
        ("system", None),
        ("worker", 7),
        ("schedule", "\ud800"),
    ],
)
def test_what_no_reader_could_decode_is_no_actor(kind: Any, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="worker, human, system, schedule"):
        Actor(kind, name)


@given(actor=ACTORS)
def test_an_actor_survives_the_store(actor: Actor) -> None:
    assert msgspec.json.decode(msgspec.json.encode(actor), type=Actor) == actor


def test_an_actor_is_packed_without_what_it_lacks() -> None:
    assert msgspec.json.encode(Actor.system("cron")) == b'{"kind":"system","id":"cron"}'


def test_an_actor_is_named_as_on_the_command_line() -> None:
    assert str(Actor.human("ada@example.com")) == "human:ada@example.com"


def test_values_do_not_change() -> None:
    actor = Actor.system("cron")
    with pytest.raises(AttributeError):
        actor.id = "other"  # type: ignore[misc]
    assert len({actor, Actor.system("cron")}) == 1


def test_here_is_this_process() -> None:
    site = Site.here(instance="blue", region="eu")
    assert (site.host, site.pid) == (socket.gethostname(), os.getpid())
    assert (site.instance, site.region, site.worker_id, site.epoch) == ("blue", "eu", None, None)


def test_a_site_survives_the_store() -> None:
    site = Site("host", 7, "w-1", "blue", "eu", 3)
    assert msgspec.json.decode(msgspec.json.encode(site), type=Site) == site


def test_provenance_is_written_in_utc_with_a_z() -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    provenance = Provenance(
        Actor.worker("w-1"), Site("host", 7), Code("pay", "1", "step", "charge"), 2, at
    )
    encoded = msgspec.json.encode(provenance)
    assert msgspec.json.decode(encoded)["at"] == "2030-01-02T03:04:05.000006Z"
    assert msgspec.json.decode(encoded, type=Provenance) == provenance
