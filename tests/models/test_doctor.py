"""The doctor reports without loading, downloading or changing anything."""

from specdemo.models import doctor


def by_name(facts):
    return {fact.name: fact for fact in facts}


def test_facts_are_whole_and_bad_ones_carry_advice(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    facts = doctor.facts()
    assert all(fact.name and fact.value for fact in facts)
    assert all(fact.advice for fact in facts if not fact.ok)
    assert {"Python", "torch", "4-bit on the CPU", "CUDA", "Cache", "Embedded model"} <= set(
        by_name(facts)
    )
    assert "first start" in by_name(facts)["Embedded model"].value
    assert not (tmp_path / "cache").exists()


def test_a_wrong_setting_and_a_lost_wheel_are_reported_beside_the_rest(monkeypatch):
    monkeypatch.setenv("SPECDEMO_PORT", "eighty")
    monkeypatch.setenv("SPECDEMO_WHEEL", "/nowhere.whl")
    facts = by_name(doctor.facts())
    assert not facts["Settings"].ok
    assert not facts["SPECDEMO_WHEEL"].ok
    assert "CPU" in facts


def test_versions_are_compared_with_the_requirements(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text(
        "# comment\nnumpy\ntorch>=99\nhuggingface-hub>=0.1\n"
    )
    monkeypatch.setattr(doctor, "REQUIREMENTS", tmp_path / "requirements.txt")
    facts = by_name(doctor.facts())
    assert not facts["torch"].ok
    assert "wanted >=99" in facts["torch"].value
    assert facts["huggingface_hub"].ok
