"""The community's benchmarks: excerpts written in each set's format, read in each way."""

import json
from dataclasses import replace

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tube_lightning.data import CORPORA, ByteTokenizer, corpus_sequences, files
from tube_lightning.data.corpora import find_corpus
from tube_lightning.data.detokenizers import (
    detokenize_lambada,
    detokenize_ptb,
    detokenize_scientific_papers,
    detokenize_wikitext,
)

LENGTH, VOCAB_SIZE = 4, 257

# A raw document of each set, and the text that a model is to see.
EXCERPTS = {
    "openwebtext-split": ("Port , open .\n\nNight", "Port , open .\n\nNight\0"),
    "lm1b-wrap": ("It 's late , he said .", "It's late, he said.\0"),
    "lm1b-gpt2": ("It 's late , he said .", "It's late, he said.\0"),
    "ptb": ("the bank did n't pay $ N", "the bank didn't pay $1\n"),
    "wikitext2": (" The two @-@ act play ( 1890 ) . ", "The two-act play (1890).\n"),
    "wikitext103": (" = = Cast = = ", "== Cast ==\n"),
    "lambada": ("`` come in , '' she said", '\n"come in," she said'),
    "ag_news": ("Oil falls , again", "Oil falls , again"),
    "scientific_papers_arxiv": ("see @xcite , eq . ( 2 )", "see @xcite, eq. (2)"),
    "scientific_papers_pubmed": ("dose ( 5 mg ) , daily .", "dose (5 mg), daily."),
}
# Where the repository on the hub has the split, and a file of another one beside it.
LAYOUTS = {
    "openwebtext-split": ("plain_text/train-00079-of-00080.parquet", None),
    "lm1b-wrap": ("data/test-00000-of-00001.parquet", "data/train-00000-of-00009.parquet"),
    "lm1b-gpt2": ("data/test-00000-of-00001.parquet", "data/train-00000-of-00009.parquet"),
    "ptb": ("penn_treebank/validation/0000.parquet", "penn_treebank/test/0000.parquet"),
    "wikitext2": (
        "wikitext-2-raw-v1/validation-00000-of-00001.parquet",
        "wikitext-103-raw-v1/validation-00000-of-00001.parquet",
    ),
    "wikitext103": (
        "wikitext-103-raw-v1/validation-00000-of-00001.parquet",
        "wikitext-2-raw-v1/validation-00000-of-00001.parquet",
    ),
    "lambada": ("default/test/0000.parquet", "de/test/0000.parquet"),
    "ag_news": ("data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"),
    "scientific_papers_arxiv": (
        "document/validation-00000-of-00001.parquet",
        "section/validation-00000-of-00001.parquet",
    ),
    "scientific_papers_pubmed": (
        "document/validation-00000-of-00001.parquet",
        "document/test-00000-of-00001.parquet",
    ),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write_parquet(path, texts, column="text", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"label": list(range(len(texts))), column: texts}), path, **options)
    return path


def sequences_of(name, path, **options):
    options = {"length": LENGTH, "vocab_size": VOCAB_SIZE, **options}
    return corpus_sequences(name, "byte", path=path, **options)


def text_of(sequences):
    return ByteTokenizer().decode(sequences.tokens.flatten())


def whole(text):
    """What packing keeps of a text."""
    return text[: len(text) // LENGTH * LENGTH]


def test_every_name_of_the_community_is_known():
    assert set(CORPORA) == set(EXCERPTS) == set(LAYOUTS)


@pytest.mark.parametrize("name", EXCERPTS)
def test_a_local_copy_of_the_repository(tmp_path, name):
    raw, text = EXCERPTS[name]
    column, (right, other) = CORPORA[name].column, LAYOUTS[name]
    write_parquet(tmp_path / "repository" / right, [raw, "", raw], column)
    if other is not None:
        write_parquet(tmp_path / "repository" / other, ["WRONG SPLIT"], column)
    sequences = sequences_of(name, tmp_path / "repository")
    assert text_of(sequences) == whole(text * 2)
    assert sequences.source == f"{name} ({tmp_path / 'repository'})"


@pytest.mark.parametrize("name", EXCERPTS)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_local_files(tmp_path, name, suffix):
    raw, text = EXCERPTS[name]
    column, path = CORPORA[name].column, tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        write_parquet(path, [raw, " \n", raw], column)
    else:
        path.write_text("".join(json.dumps({column: row}) + "\n" for row in [raw, " ", raw]))
    assert text_of(sequences_of(name, path)) == whole(text * 2)
    apart = sequences_of(name, str(path), per_document=True)
    assert apart.num_tokens + apart.num_dropped == 2 * len(text)


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("wikitext2", "wiki.valid.raw"),
        ("wikitext103", "wiki.valid.tokens"),
        ("ptb", "ptb.valid.txt"),
        ("lm1b-wrap", "news.en.heldout-00000-of-00050"),
        ("lm1b-gpt2", "sample_text"),
    ],
)
def test_text_files_as_they_are_published_have_a_document_a_line(tmp_path, corpus, name):
    raw, text = EXCERPTS[corpus]
    (tmp_path / name).write_text(f" \n{raw}\n \n{raw}\n")
    assert text_of(sequences_of(corpus, tmp_path / name)) == whole(text * 2)


def test_a_file_and_its_repository_give_the_same_tokens(tmp_path):
    lines = [" = Title = ", "", ' He said : " no " . ', " Then 1 @,@ 000 more . "]
    (tmp_path / "wiki.valid.raw").write_text("".join(f"{line}\n" for line in lines))
    rows = [f"{line}\n" if line else "" for line in lines]  # as the hub has them
    write_parquet(tmp_path / "hub" / LAYOUTS["wikitext2"][0], rows)
    from_file = sequences_of("wikitext2", tmp_path / "wiki.valid.raw")
    assert from_file.sha256 == sequences_of("wikitext2", tmp_path / "hub").sha256
    assert text_of(from_file).startswith('= Title =\nHe said: "no".\nThen 1,000')


def test_end_of_document_can_be_chosen(tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", ["ab", "cd"])
    assert text_of(sequences_of("ag_news", path, append_eos=True)) == "ab\0c"
    assert text_of(sequences_of("openwebtext-split", path, append_eos=False)) == "abcd"


# ---- the last documents of OpenWebText


def numbered(folder, sizes, row_group_size=2):
    """Parquet files whose documents are their numbers, three digits each."""
    first = 0
    for part, size in enumerate(sizes):
        texts = [f"{number:03}" for number in range(first, first + size)]
        path = folder / "plain_text" / f"train-{part:05}-of-{len(sizes):05}.parquet"
        write_parquet(path, texts, row_group_size=row_group_size)
        first += size


@pytest.mark.parametrize("count", [1, 4, 5, 6, 11, 12, 50])
@pytest.mark.parametrize("way", ["folder", "files"])
def test_the_last_documents(tmp_path, monkeypatch, count, way):
    numbered(tmp_path, [3, 4, 5])
    corpus = CORPORA["openwebtext-split"]
    assert corpus.last == 100_000
    monkeypatch.setitem(CORPORA, "openwebtext-split", replace(corpus, last=count))
    path = tmp_path if way == "folder" else tmp_path / "plain_text" / "*.parquet"
    sequences = sequences_of("openwebtext-split", path)
    assert text_of(sequences) == "".join(f"{n:03}\0" for n in range(max(0, 12 - count), 12))


def test_files_before_the_last_documents_are_not_read(tmp_path):
    numbered(tmp_path, [3, 4, 5])
    paths = sorted((tmp_path / "plain_text").iterdir())
    paths[0].write_bytes(b"PAR1 unreadable")
    assert list(files.last_documents(paths, 6)) == ["006", "007", "008", "009", "010", "011"]
    with pytest.raises(ValueError, match=r"train-00000.*cannot be read as parquet"):
        files.last_documents(paths, 10)


def test_last_lines_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.txt").write_text("3\n4\n")
    paths = str(tmp_path / "*.txt")
    assert list(files.last_documents(paths, 3, lines=True)) == ["2", "3", "4"]
    assert list(files.last_documents(paths, 1)) == ["3\n4\n"]


# ---- bad input


def test_unknown_names():
    with pytest.raises(
        ValueError, match=r"one of openwebtext-split, .*got 'wikitex2'; did you mean"
    ):
        find_corpus("wikitex2")
    with pytest.raises(ValueError, match=r"corpus: expected one of .*pubmed, got 'xyzzy'$"):
        corpus_sequences("xyzzy", "byte", length=4, vocab_size=257)


@pytest.mark.parametrize("name", EXCERPTS)
def test_without_the_hub_a_path_is_asked_for(name):
    """The suite sets HF_HUB_OFFLINE: the hub is refused as where there is no network."""
    with pytest.raises(FileNotFoundError, match=f"{name}: .*{CORPORA[name].hub}.*data.path=FILES"):
        sequences_of(name, None)


def test_a_folder_of_something_else(tmp_path):
    write_parquet(tmp_path / "other" / "rows.parquet", ["text"])
    with pytest.raises(FileNotFoundError, match=r"ptb: cannot load .*the folder .*other; give"):
        sequences_of("ptb", tmp_path / "other")


@pytest.mark.parametrize("way", ["folder", "file"])
def test_wrong_column(tmp_path, way):
    file = write_parquet(tmp_path / LAYOUTS["ptb"][0], ["some text"], "body")
    path = tmp_path if way == "folder" else file
    with pytest.raises(ValueError, match="expected a column 'sentence', found 'label', 'body'"):
        sequences_of("ptb", path)
    assert text_of(sequences_of("ptb", path, column="body")) == "some tex"


def test_rows_that_are_no_text(tmp_path):
    write_parquet(tmp_path / LAYOUTS["ptb"][0], [1, 2], "sentence")
    with pytest.raises(ValueError, match="ptb: expected text in the column 'sentence', got int"):
        sequences_of("ptb", tmp_path)


def test_no_file_is_found_before_a_tokenizer_is_loaded(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.txt: no such file"):
        corpus_sequences("ptb", "no/tokenizer", path=tmp_path / "no.txt", length=4, vocab_size=9)
    (tmp_path / "rows.csv").write_text("a")
    with pytest.raises(ValueError, match=r"rows\.csv: expected a file ending in"):
        corpus_sequences("ptb", "no/tokenizer", path=tmp_path / "rows.csv", length=4, vocab_size=9)


# ---- detokenizers


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (" = Hull = \n", "= Hull =\n"),
        (" = = = Later years = = = \n", "=== Later years ===\n"),
        (" x = = y is odd . \n", "x = = y is odd.\n"),
        (" a 4 @.@ 5 @-@ inch gun of 1 @,@ 200 kg \n", "a 4.5-inch gun of 1,200 kg\n"),
        (' She sang " Blue " , " Red " ; then left . ', 'She sang "Blue", "Red"; then left.\n'),
        (" The ships ' guns ( and [ the ] crew 's ) . ", "The ships' guns (and [the] crew's).\n"),
        (" He said ' it isn 't so ' and left . ", "He said 'it isn't so' and left.\n"),
        (" It cost $ 5 @.@ 2 million , 16 % more . ", "It cost $5.2 million, 16% more.\n"),
        (" <unk> of the <unk> , too ", "<unk> of the <unk>, too\n"),
    ],
)
def test_wikitext(raw, text):
    assert detokenize_wikitext(raw) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (" mr. <unk> is chairman of the N N group \n", "mr. <unk> is chairman of the 1 1 group\n"),
        ("a N-year bond yields N N %", "a 1-year bond yields 1 1%\n"),
        ("they wo n't say it 's c$ N or # N", "they won't say it's c$1 or #1\n"),
        ("investors ' and traders ' funds", "investors' and traders' funds\n"),
        (r"buy and\/or sell NYSE", "buy and/or sell NYSE\n"),
    ],
)
def test_ptb(raw, text):
    assert detokenize_ptb(raw) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("`` it 's me , '' he said . `` we 've won ! ''", '\n"it\'s me," he said. "we\'ve won!"'),
        ("she did n't say ` yes '", "\nshe didn't say 'yes '"),
        ("He smiled. 'and so?' she said, 'tis late", "\nHe smiled. 'and so?' she said, 'tis late"),
        ("\u201cNo,\u201d I said.\n\n\u2018Oh\u2019", "\n\"No,\" I said.\n\n'Oh'"),
    ],
)
def test_lambada(raw, text):
    assert detokenize_lambada(raw) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("by @xcite , @xmath12 holds ; see [ fig ] . ", "by @xcite, @xmath12 holds; see [fig]."),
        ("first one . \n second one .\nthird", "first one.\nsecond one.\nthird"),
        ('the so - called " gap " is 5 %', 'the so - called "gap" is 5%'),
    ],
)
def test_scientific_papers(raw, text):
    assert detokenize_scientific_papers(raw) == text


# ---- texts of their own


def test_lines_of_an_article_are_one_text(tmp_path):
    lines = [
        " ",
        " = Robert Boulter = ",
        " An actor . ",
        " = = Career = = ",
        " He . ",
        " = Du Fu = ",
        " A",
    ]
    (tmp_path / "wiki.valid.raw").write_text("\n".join(lines) + "\n")
    article = sequences_of("wikitext2", tmp_path / "wiki.valid.raw")
    by_number = {}
    for ids, numbers in zip(article.tokens.tolist(), article.documents.tolist(), strict=True):
        for token, number in zip(ids, numbers, strict=True):
            by_number.setdefault(number, []).append(token)
    assert list(by_number) == [0, 1]
    assert article.decode(by_number[0]).startswith("= Robert Boulter =\n")
    assert "== Career ==" in article.decode(by_number[0])
    assert article.decode(by_number[1]).startswith("= Du Fu =")


def test_sentences_of_lost_articles_are_one_text(tmp_path):
    (tmp_path / "ptb.valid.txt").write_text("consumers may want\nto move their\n")
    assert sequences_of("ptb", tmp_path / "ptb.valid.txt").documents.unique().tolist() == [0]
    (tmp_path / "news").write_text("one sentence\nanother one\n")
    assert sequences_of("lm1b-gpt2", tmp_path / "news").documents.unique().tolist() == [0, 1]
