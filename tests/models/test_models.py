"""Real models at small sizes: right beside float64, and few graphs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import tatara  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import zoo  # noqa: E402


@pytest.mark.parametrize("name", [model.name for model in zoo.MODELS])
def test_error_is_at_most_twice_eagers(name: str) -> None:
    torch.manual_seed(0)
    entry = zoo.BY_NAME[name]
    model = entry.build().eval()
    inputs = entry.inputs(1, 16)
    if name == "convnext":  # float64 convolutions by channels take half a minute on larger images
        inputs = {"pixel_values": inputs["pixel_values"][..., :64, :64].contiguous()}
    with torch.no_grad():
        eager = zoo.first_tensor(model(**inputs))
        compiled = tatara.compile(model)
        results = [zoo.first_tensor(compiled(**inputs)) for _ in range(3)]
        model.double()
        reference = zoo.first_tensor(
            model(**{k: v.double() if v.is_floating_point() else v for k, v in inputs.items()})
        )
    eager_error = (eager.double() - reference).abs().max().item()
    for ours in results:
        assert ours.shape == eager.shape
        assert ours.dtype == eager.dtype
        assert ours.stride() == eager.stride()
        assert (ours.double() - reference).abs().max().item() <= 2 * eager_error + 1e-12
    tatara.reset()
