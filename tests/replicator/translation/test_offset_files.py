"""Files of offsets in the forms that Kafka's tools have."""

from __future__ import annotations

import pytest

from replicator.model.errors import ConfigError
from replicator.model.partition import Partition
from replicator.offset_map.translate import TranslatedOffset
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.offset_files import as_csv, read_offsets

WANTED = [OffsetToTranslate(Partition("a", 0), 5), OffsetToTranslate(Partition("b.c", 12), (1 << 63) - 1)]


@pytest.mark.parametrize(
    "text",
    [
        "a,0,5\nb.c,12,9223372036854775807\n",
        '"a", 0, 5\r\n\r\n"b.c",12,9223372036854775807',
        "topic,partition,offset\na,0,5\nb.c,12,9223372036854775807",
        '[{"topic": "a", "partition": 0, "offset": 5},'
        '{"topic": "b.c", "partition": 12, "offset": 9223372036854775807}]',
        '{"version": 1, "partitions": [{"topic": "a", "partition": "0", "offset": 5, "x": 1},'
        '{"topic": "b.c", "partition": 12, "offset": "9223372036854775807"}]}',
    ],
)
def test_offsets_are_read_as_kafkas_tools_write_them(text: str) -> None:
    assert read_offsets("it", text) == WANTED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it: there are no offsets in it"),
        ("topic,partition,offset\n", "it: there are no offsets in it"),
        ("a,0,5\nb,1\n", "it, line 2: expected topic,partition,offset"),
        ("a,0,5\n\na,0,5,6\n", "it, line 3: expected topic,partition,offset"),
        ("a,0,-1\n", "it, line 1: offset '-1': expected a number from 0"),
        ("a,x,5\n", "it, line 1: partition 'x': expected a number from 0"),
        ("a,0,9223372036854775808\n", "it, line 1: offset 9223372036854775808: expected a number from 0"),
        ("a,0,²\n", "it, line 1: offset '²': expected a number from 0"),
        (",0,5\n", "it, line 1: no topic"),
        ('"a,0,5\n', "it, line 1: "),
        ("[", "it: no JSON: "),
        ('{"offsets": []}', "it: expected a list of offsets"),
        ("[]", "it: there are no offsets in it"),
        ("[5]", "it, entry 1: expected topic, partition and offset"),
        ('[{"topic": "a", "partition": 0}]', "it, entry 1: expected topic, partition and offset"),
        ('[{"topic": 1, "partition": 0, "offset": 5}]', "it, entry 1: no topic"),
        ('[{"topic": "a", "partition": true, "offset": 5}]', "it, entry 1: partition True: expected a number"),
        ('[{"topic": "a", "partition": 0, "offset": 5.0}]', "it, entry 1: offset 5.0: expected a number"),
    ],
)
def test_a_file_that_is_wrong_says_where(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_offsets("it", text)
    assert said in str(caught.value)


def test_what_is_written_can_be_read_and_leaves_out_what_has_no_offset() -> None:
    answers = [
        OffsetAnswer(WANTED[0], Partition("a.copy", 0), TranslatedOffset(7, 0)),
        OffsetAnswer(WANTED[1], Partition("b", 12), TranslatedOffset(None), "not_copied", "it isn't"),
        OffsetAnswer(WANTED[1], Partition("b", 12), TranslatedOffset(9, None, ("unmapped",))),
    ]
    assert as_csv(answers) == "a.copy,0,7\nb,12,9\n"
    assert read_offsets("it", as_csv(answers)) == [
        OffsetToTranslate(Partition("a.copy", 0), 7),
        OffsetToTranslate(Partition("b", 12), 9),
    ]
    assert [answer.exact for answer in answers] == [True, False, False]
