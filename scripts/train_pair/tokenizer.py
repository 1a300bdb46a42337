"""Train the byte-level BPE of 4096 tokens: `tokenizer.py CORPUS_DIR OUT/tokenizer.json`.

NFC, GPT-2 splitting, all 256 bytes in the alphabet, `<|endoftext|>` as id 0. Nothing is added around a text.
"""

import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from data import documents, shards
from shapes import EOT, EOT_ID, VOCAB


def build() -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    return tok


def train(texts) -> Tokenizer:
    tok = build()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[EOT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(texts, trainer)
    assert tok.get_vocab_size() == VOCAB and tok.token_to_id(EOT) == EOT_ID
    return tok


def main():
    corpus, out = sys.argv[1:]
    tok = train(doc for path in shards(corpus) for doc in documents(path))
    tok.save(out)


if __name__ == "__main__":
    main()
