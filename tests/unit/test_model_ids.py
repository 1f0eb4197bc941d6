"""Names and ids: what the grammars accept, and that ids are canonical and sort by creation."""

from __future__ import annotations

import re
from uuid import UUID, uuid4, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument, InvalidName
from perdure.model.ids import (
    CHANNEL,
    DISPATCH_KEY,
    FRAME_KEY,
    FRAME_NAME,
    QUEUE,
    VERSION,
    WORKFLOW,
    check_name,
    is_text,
    new_eid,
    parse_eid,
    task_id,
)
from tests.unit.strategies import TEXT

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"

# Grammar, the characters it allows, the longest name.
GRAMMARS = {
    "frame name": (FRAME_NAME, LETTERS + DIGITS + "_-", 128),
    "frame key": (FRAME_KEY, LETTERS + DIGITS + "_.@+=-", 256),
    "channel": (CHANNEL, LETTERS[26:] + DIGITS + "._-", 200),
    "queue": (QUEUE, LETTERS + DIGITS + "._-", 200),
    "workflow": (WORKFLOW, LETTERS + DIGITS + "._-", 200),
    "version": (VERSION, LETTERS + DIGITS + "._+-", 100),
}
EACH_GRAMMAR = pytest.mark.parametrize("what", GRAMMARS)


@EACH_GRAMMAR
@given(data=st.data())
def test_a_name_of_allowed_characters_is_returned_unchanged(what: str, data: st.DataObject) -> None:
    pattern, alphabet, longest = GRAMMARS[what]
    name = data.draw(st.text(alphabet, min_size=1, max_size=longest))
    assert check_name(what, name, pattern) == name


@EACH_GRAMMAR
def test_the_longest_name_is_accepted_and_one_character_more_is_not(what: str) -> None:
    pattern, alphabet, longest = GRAMMARS[what]
    assert check_name(what, alphabet[-1] * longest, pattern)
    with pytest.raises(InvalidName):
        check_name(what, alphabet[-1] * (longest + 1), pattern)


@EACH_GRAMMAR
@given(data=st.data())
def test_one_character_outside_the_alphabet_is_refused(what: str, data: st.DataObject) -> None:
    pattern, alphabet, _ = GRAMMARS[what]
    good = data.draw(st.text(alphabet, max_size=5))
    bad = data.draw(st.characters(exclude_characters=alphabet))
    position = data.draw(st.integers(0, len(good)))
    name = good[:position] + bad + good[position:]
    with pytest.raises(InvalidName) as caught:
        check_name(what, name, pattern)
    assert (caught.value.what, caught.value.value) == (what, name)
    assert caught.value.pattern == pattern.pattern


@EACH_GRAMMAR
@pytest.mark.parametrize(
    "name", ["", "a\n", "\na", "a b", "a/b", "a#0", "a:b", "é", "\N{ARABIC-INDIC DIGIT THREE}"]
)
def test_separators_of_frame_ids_and_line_ends_are_in_no_name(what: str, name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(what, name, GRAMMARS[what][0])


@pytest.mark.parametrize("value", [None, 7, b"name", ["name"], object()])
def test_what_is_no_string_is_no_name(value: object) -> None:
    with pytest.raises(InvalidName, match="channel") as caught:
        check_name("channel", value, CHANNEL)
    assert caught.value.value is value


def test_a_channel_has_no_capitals() -> None:
    with pytest.raises(InvalidName):
        check_name("channel", "Payments", CHANNEL)


@given(key=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=512))
def test_a_dispatch_key_is_any_text_without_control_characters(key: str) -> None:
    assert check_name("dispatch key", key, DISPATCH_KEY) == key


@pytest.mark.parametrize("key", ["", "a\x00", "a\n", "\x7f", "\ud800", "a\udfff", "x" * 513])
def test_a_dispatch_key_that_no_store_can_keep_is_refused(key: str) -> None:
    with pytest.raises(InvalidName):
        check_name("dispatch key", key, DISPATCH_KEY)


@given(text=TEXT)
def test_text_is_what_utf8_can_carry(text: str) -> None:
    assert is_text(text)
    assert not is_text(text + "\ud800")


@pytest.mark.parametrize("value", [None, 1, b"text", ["text"]])
def test_text_is_a_string(value: object) -> None:
    assert not is_text(value)


def test_new_ids_are_version_7_and_sort_as_text_in_the_order_they_were_made() -> None:
    eids = [new_eid() for _ in range(5_000)]
    names = [str(eid) for eid in eids]
    assert all(type(eid) is UUID and eid.version == 7 for eid in eids)
    assert names == sorted(set(names))


@given(eid=st.uuids())
def test_an_id_is_read_from_its_text_in_either_case(eid: UUID) -> None:
    assert parse_eid(eid) is eid
    assert parse_eid(str(eid)) == eid
    assert parse_eid(str(eid).upper()) == eid


EID = UUID("0190163d-8694-7390-8a1c-2f0f1c0a7b11")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "xyz",
        str(EID)[:-1],
        str(EID) + "0",
        EID.hex,
        f"{{{EID}}}",
        f"urn:uuid:{EID}",
        f" {EID}",
        f"{EID}\n",
        str(EID).replace("0190163d", "\N{ARABIC-INDIC DIGIT ZERO}190163d"),
        str(EID).replace("-", "_"),
        "\ud800" * 36,
        None,
        7,
        b"0190163d-8694-7390-8a1c-2f0f1c0a7b11",
        EID.bytes,
    ],
)
def test_what_is_no_36_character_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="36-character") as caught:
        parse_eid(value)  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


@given(text=st.text(max_size=40))
def test_any_other_text_is_refused_too(text: str) -> None:
    if re.fullmatch(r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is None:
        with pytest.raises(InvalidArgument):
            parse_eid(text)


def test_a_task_id_names_kind_execution_and_key() -> None:
    assert task_id("resume", EID) == f"resume:{EID}"
    assert task_id("delegate", EID, "k") == f"delegate:{EID}:k"


@given(
    one=st.tuples(st.sampled_from(["start", "resume"]), st.uuids()),
    other=st.tuples(st.sampled_from(["start", "resume"]), st.uuids()),
)
def test_task_ids_are_equal_exactly_if_their_parts_are(
    one: tuple[str, UUID], other: tuple[str, UUID]
) -> None:
    assert (task_id(*one) == task_id(*other)) == (one == other)


@pytest.mark.parametrize("eid", [uuid4(), uuid5(EID, "root/w#0")])
def test_ids_of_other_versions_are_ids_too(eid: UUID) -> None:
    assert parse_eid(str(eid)) == eid
