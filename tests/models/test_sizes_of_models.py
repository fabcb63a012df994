"""Models at many shapes: right each time, two compilations at most."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

PAIRS = [(2, 8), (3, 8), (3, 11), (5, 16), (4, 7), (8, 24), (6, 5), (7, 33), (2, 16), (11, 3)]


def _ids(batch: int, length: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, 90, (batch, length))}


def _pair(batch: int, length: int) -> dict[str, Any]:
    return {**_ids(batch, length), "decoder_input_ids": torch.randint(0, 90, (batch, length + 1))}


def _images(batch: int, _length: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def _bert() -> Any:
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
        )
    )


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=90, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    )


def _t5() -> Any:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=90, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False)
    )


def _vit() -> Any:
    return transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            image_size=32,
            patch_size=8,
        )
    )


def _qwen3() -> Any:
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=90,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            use_cache=False,
        )
    )


@pytest.mark.parametrize(
    ("build", "inputs"),
    [(_bert, _ids), (_gpt2, _ids), (_t5, _pair), (_vit, _images), (_qwen3, _ids)],
    ids=["bert", "gpt2", "t5", "vit", "qwen3"],
)
def test_ten_shapes_compile_twice(build: Any, inputs: Any) -> None:
    model = build().eval()
    compiled = tatara.compile(model, fullgraph=True)
    with torch.no_grad():
        for batch, length in PAIRS:
            given = inputs(batch, length)
            ours, eager = compiled(**given)[0], model(**given)[0]
            same(ours, eager, rtol=1e-4, atol=1e-5)
    report = compiled._compiled_forward._report()
    assert all(e["fallback"] == "" and e["end"] == "return" for e in report["entries"])
    assert len(report["entries"]) <= 2, report["recompiles"]
    tatara.reset()
