"""The page in a real Chromium: hostile text stays text, every state shows, nothing leaves the machine."""

import pytest
from ui.scripted import HOSTILE, ReadyStudio

pytestmark = pytest.mark.browser

STUDIO = ReadyStudio


@pytest.fixture
def page(open_page, url):
    page = open_page()
    page.goto(url)
    page.wait_for_selector("#sd-view .sd-numbers")
    return page


@pytest.fixture
def same_page(opened_once):
    """A page on which other tests have run prompts."""
    yield opened_once
    assert opened_once.problems == []


def ask(page, prompt):
    page.locator("#sd-prompt textarea").fill(prompt)
    page.get_by_role("button", name="Run", exact=True).click()


def run(page, prompt):
    """Run a prompt, another one than the page shows."""
    ask(page, prompt)
    page.locator(".sd-asked", has_text=prompt).first.wait_for()
    page.wait_for_function("document.querySelector('.sd-badge').textContent !== 'recorded'")


def finished(page, state="Finished"):
    page.wait_for_function(
        f"document.querySelector('.sd-phase')?.textContent.startsWith('{state}')"
    )


def choose(page, title):
    page.locator("#sd-method input").click()
    page.get_by_role("option", name=title, exact=True).click()


def test_hostile_tokens_stay_text_and_every_state_shows(same_page):
    page = same_page
    run(page, "<img src=x onerror=window.hacked=1>")
    finished(page)
    text = page.locator(".sd-answer").inner_text()
    for hostile in ("<img src=x onerror=1>", "${6*7}", "C:\\users", "evil"):
        assert hostile in text
    assert page.evaluate("window.hacked") is None
    assert page.locator(".sd-answer img, .sd-answer script, .sd-asked img").count() == 0
    for status in ("accepted", "rejected", "unreached", "correction", "bonus"):
        assert page.locator(f".sd-answer .sd-{status}").count() > 0
    assert page.locator(".sd-answer .sd-name", has_text="RLO").count() > 0
    page.locator(".sd-more summary").click()  # each number has its source, the others on demand
    page.locator(".sd-numbers-rest .sd-origin", has_text="measured").nth(3).wait_for(
        state="attached"
    )
    page.locator(".sd-more summary").click()
    assert page.locator(".sd-number-speedup dd b").inner_text() != "\N{EN DASH}"
    page.wait_for_function("document.querySelectorAll('.sd-plot .main-svg').length >= 2")
    page.locator(".sd-answer .sd-token.sd-rejected").first.hover()
    inspector = page.locator(".sd-inspector")
    inspector.get_by_text("draw 0.25 is not below the accept probability 0.50").wait_for()
    assert "recorded without detail" in inspector.inner_text()
    assert inspector.locator("img, script").count() == 0


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1280, "dark")])
def test_a_tree_is_drawn_lit_and_walked(page, width, theme):
    page.set_viewport_size({"width": width, "height": 844})
    if theme == "dark":
        page.locator("#sd-header-more").click()
        page.locator("#sd-theme").click()
    run(page, "tree")
    finished(page)
    tree = page.locator(".sd-tree")
    tree.get_by_text("Step 8: 1 kept").wait_for()
    assert tree.locator(".sd-node").count() == 6
    # the accepted node, and the target's own after it
    assert tree.locator(".sd-link-lit").count() == 2
    assert tree.locator("img, script").count() == 0
    assert HOSTILE[0][:4] in tree.locator("svg").text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= width + 1
    looks = {
        status: tree.locator(f".sd-node-{status} rect").first.evaluate(
            "e => [getComputedStyle(e).strokeDasharray, getComputedStyle(e).strokeWidth, "
            "e.getAttribute('rx'), e.parentNode.querySelectorAll('line').length].join()"
        )
        for status in ("accepted", "rejected", "unreached", "correction")
    }
    assert len(set(looks.values())) == 4, looks  # they differ without their colours

    # A step of the text is the step of the tree; a node shows its numbers and leaves the tree free.
    page.locator(".sd-answer .sd-step").nth(2).locator(".sd-correction").hover()
    tree.get_by_text("Step 3:").wait_for()
    node = tree.locator(".sd-node-rejected").first
    node.hover()
    told = tree.locator(".sd-summary")
    told.get_by_text("node 4, depth 2").wait_for()
    assert "0.25" in told.inner_text()
    assert node.evaluate(
        "e => { const box = e.getBoundingClientRect(); return e.contains("
        "document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)); }"
    )
    assert page.locator(".sd-step.sd-lit").get_attribute("data-step") == "2"

    page.locator(".sd-tree-box").focus()
    for key, node in (
        ("ArrowRight", "1"),  # into the tree: the accepted node
        ("ArrowRight", "-1"),  # to the target's own token after it
        ("ArrowLeft", "1"),
        ("ArrowDown", "-1"),
        ("ArrowDown", "3"),  # the refused sibling below
        ("ArrowRight", "4"),
        ("ArrowUp", "3"),
    ):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.node") == node
    assert "rejected" in told.inner_text()
    described = page.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert page.locator(f"[id='{described}']").inner_text() == told.inner_text()

    # The text retains rejected tokens and counts the rest.
    step = page.locator(".sd-answer .sd-step").first
    assert step.locator(".sd-rejected").count() == 2
    assert "+2" in step.locator(".sd-unreached").inner_text()


def test_the_charts_show_the_oracle_the_forecast_and_the_bound(page):
    page.get_by_role("button", name="Enlarge").click()
    page.locator(".sd-more summary").click()
    run(page, "tree")
    finished(page)
    page.locator(".sd-chart-key", has_text="bound when fully overlapped (modelled)").wait_for()
    keys = page.locator(".sd-chart-key").all_inner_texts()
    assert "best possible, in hindsight" in keys[1]
    assert "predicted (modelled)" in keys[0]
    page.wait_for_function("document.querySelectorAll('.sd-plot')[1].data?.[4].text.length === 8")
    page.wait_for_function("document.querySelector('.sd-plot').data?.length === 4")
    plots = "[...document.querySelectorAll('.sd-plot')].map((plot) => plot.data)"
    speedup, lookahead = page.evaluate(plots)[:2]
    assert "from: tree" in lookahead[4]["text"][0]
    assert "best possible, in hindsight: 1" in lookahead[4]["text"][0]
    assert len({trace["line"]["dash"] for trace in speedup[:3]}) == 3
    page.locator(".sd-number-prepared dd b").get_by_text("50", exact=True).wait_for()
    page.locator(".sd-number-saved dd b").get_by_text("80", exact=True).wait_for()
    run(page, "hello")
    finished(page)
    page.locator(".sd-number-prepared").wait_for(state="hidden")
    page.locator(".sd-tree").wait_for(state="hidden")
    page.wait_for_function("document.querySelector('.sd-chart-key').children.length === 1")


def test_a_lossy_run_is_marked_and_claims_no_equal_text(same_page):
    page = same_page
    run(page, "lossy")
    finished(page)
    assert page.locator(".sd-lossy").first.inner_text() == "lossy by design"
    assert "plain decoding" not in page.locator(".sd-phase").inner_text()
    kept = page.locator(".sd-legend li").first.get_attribute("title")
    assert "looser" in kept
    run(page, "hello")
    page.locator(".sd-status .sd-lossy", has_text="lossy").wait_for(state="hidden")
    finished(page)
    assert page.locator(".sd-legend li").first.get_attribute("title") != kept


def test_the_menu_explains_each_method_and_hides_what_it_does_not_read(page):
    page.get_by_role("button", name="Settings").click()
    page.locator("#sd-note", has_text="Guesses.").wait_for()
    assert page.locator("#sd-policy").is_visible()
    choose(page, "Tree (not available here)")
    page.locator("#sd-note", has_text="<b>There is</b> no draft.").wait_for()
    assert "Needs D." in page.locator("#sd-note").inner_text()
    page.locator("#sd-nodes").wait_for()
    page.locator("#sd-policy").wait_for(state="hidden")
    choose(page, "Look back (lossy)")
    page.locator("#sd-note", has_text="Lossy by design").wait_for()
    page.locator("#sd-memory").wait_for()
    page.get_by_role("button", name="Clear what was learned").click()
    page.get_by_text("What was learned is cleared.").wait_for()
    run(page, "hello")
    finished(page)


def test_clear_empties_the_page_with_a_notice(page):
    run(page, "hello")
    finished(page)
    page.get_by_role("button", name="Clear", exact=True).click()
    page.get_by_text("Cleared: the conversation").wait_for()
    page.locator("#sd-view .sd-empty").wait_for()  # the notice may come first
    assert page.locator("#sd-view .sd-answer .sd-token").count() == 0
    page.get_by_role("button", name="Stop", exact=True).wait_for(state="hidden")
    page.wait_for_function("document.querySelector('#sd-prompt textarea').value === ''")


def test_the_last_audit_is_a_table_of_text(page):
    page.get_by_role("tab", name="Methods").click()
    page.locator("#sd-audit td").first.wait_for()
    assert HOSTILE[0] in page.locator("#sd-audit").inner_text()
    assert "3 of 4" in page.locator("#sd-audit").inner_text()
    assert page.locator("#sd-audit img").count() == 0
    page.set_viewport_size({"width": 390, "height": 844})  # each row is a card of one column
    for box in page.locator(".sd-audit-box").all():
        assert box.evaluate("element => element.scrollWidth - element.clientWidth") <= 1
    cell = page.locator("#sd-methods td[data-head='guesses with']").first
    assert "guesses with" in cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert page.get_by_role("table", name="").get_by_role("rowheader").count()  # and still a table


def test_the_methods_tab_fits_a_narrow_phone(page):
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("tab", name="Methods").click()
    page.locator(".sd-adviser select").first.wait_for()
    for menu in page.locator(".sd-adviser select").all():
        assert menu.evaluate("menu => menu.getBoundingClientRect().right") <= 344
    columns = "cells => cells.map((cell) => parseFloat(getComputedStyle(cell).gridTemplateColumns))"
    heads = page.locator(".sd-methods-gain[data-head]").evaluate_all(columns)
    assert min(head for head in heads if head == head) > 80  # NaN: a cell that is not shown


def test_after_a_run_its_prompt_reaches_a_tab_that_was_never_opened(page):
    run(page, "tree")
    page.get_by_role("button", name="Race this prompt").press("Enter")
    page.wait_for_function("document.activeElement.id === 'sd-race-start'")
    assert page.locator("#sd-race-prompt textarea").input_value() == "tree"
    page.get_by_role("tab", name="Play").click()
    page.get_by_role("button", name="Explain the first rejection").press("Enter")
    page.wait_for_function("document.activeElement.matches('.sd-inspector-box')")
    page.get_by_role("button", name="What would the others have guessed here?").wait_for()


def test_a_seed_keeps_its_text_under_drafts_by_a_click_and_a_new_seed_is_another(page):
    run(page, "drawn")
    answer = page.locator(".sd-answer").last
    page.get_by_role("button", name="Try it at temperature 1").click()
    answer.filter(has_text="coupled at 1.0 from 0;").wait_for()
    assert not page.get_by_role("button", name="Same text with and without drafts").is_visible()
    page.get_by_role("button", name="New seed").click()
    answer.filter(has_not_text="from 0;").filter(has_text="coupled at 1.0 from").wait_for()
    assert page.problems == []


def test_a_method_of_the_table_is_raced_against_plain_decoding_and_tried(page):
    page.get_by_role("tab", name="Methods").click()
    page.locator("#sd-methods td", has_text="<b>There is</b>").wait_for()
    assert page.get_by_role("button", name="Race it: Tree").count() == 0  # it is not available
    page.get_by_role("button", name="Race it: Look back").click()
    page.get_by_role("button", name="Set up").click()
    lane = "document.querySelector('#sd-race-method-2 input')?.value"
    page.wait_for_function(f"{lane}?.startsWith('Look back')")
    page.get_by_role("tab", name="Methods").click()
    page.get_by_role("button", name="Try it: Look back").click()
    page.wait_for_function(
        "document.querySelector('#sd-method input')?.value.startsWith('Look back')"
    )


def test_the_training_card_is_text_and_a_curve_and_follows_the_method(page):
    choose(page, "Draft model")
    page.get_by_role("tab", name="Methods").click()
    page.get_by_role("button", name="Training").click()
    lines = "document.querySelectorAll('#sd-card .scatterlayer .trace').length"
    page.wait_for_function(f"{lines} === 2")
    assert HOSTILE[0] in page.locator("#sd-card").inner_text()
    assert page.locator("#sd-card img").count() == 0
    page.get_by_role("tab", name="Play").click()
    choose(page, "Look back (lossy)")
    page.get_by_role("tab", name="Methods").click()
    page.locator("#sd-card", has_text="nothing to train").wait_for()
    assert page.locator("#sd-card svg").count() == 0


def test_stop_keeps_the_text_so_far_and_the_page_still_works(same_page):
    page = same_page
    run(page, "forever")
    page.wait_for_function("document.querySelectorAll('.sd-answer .sd-token').length > 20")
    page.keyboard.press("Escape")
    finished(page, "Stopped")
    assert page.locator(".sd-answer .sd-token").count() > 20
    run(page, "again")
    finished(page)


def test_a_run_starts_before_the_slow_last_step_of_the_previous_run(same_page):
    page = same_page
    run(page, "slow")
    page.wait_for_function("document.querySelectorAll('.sd-answer .sd-token').length > 20")
    run(page, "instead")
    finished(page)
    assert "instead" in page.locator(".sd-asked").inner_text()


def test_an_error_is_a_block_of_sentences(same_page):
    page = same_page
    ask(page, "fail")
    block = page.locator(".sd-problem")
    block.wait_for()
    assert block.inner_text().split("\n") == ["It happened.", "All is well.", "Try again."]
    page.get_by_role("button", name="Stop", exact=True).wait_for(state="hidden")


def test_a_chart_says_when_it_follows_while_its_library_is_not_there(page, url):
    other = page.context.new_page()
    other.route("**/plotly.min.js", lambda asked: asked.abort())
    other.goto(url)
    other.locator("#sd-view .sd-chart-empty", has_text="The chart follows").first.wait_for()


def test_ctrl_enter_runs_and_the_theme_changes(page):
    page.locator("#sd-prompt textarea").fill("hello")
    page.locator(".sd-stage.sd-stale").wait_for()  # another question than the one that is answered
    page.keyboard.press("Control+Enter")
    page.locator(".sd-stage.sd-stale").wait_for(state="detached")
    page.wait_for_function("document.querySelector('.sd-badge').textContent === 'measured'")
    colour = "getComputedStyle(document.querySelector('.sd-stage')).backgroundColor"
    before = page.evaluate(colour)
    page.locator("#sd-header-more").click()
    page.locator("#sd-theme").click()
    assert page.evaluate(colour) != before


def test_a_trace_is_saved_and_opened_and_a_broken_one_is_explained(page, tmp_path):
    run(page, "hello")
    finished(page)
    with page.expect_download() as download:
        page.locator(".sd-menu summary").click()
        page.get_by_role("button", name="Trace (JSON lines)").click()
    with page.expect_download() as replay:
        page.locator(".sd-menu summary").click()
        page.get_by_role("button", name="Replay (one HTML file)").click()
    assert HOSTILE[1] in replay.value.path().read_text(encoding="utf-8")
    saved = tmp_path / "trace.jsonl"
    download.value.save_as(saved)
    cut = tmp_path / "cut.jsonl"
    cut.write_text(saved.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    page.locator(".sd-tools input[type=file]").set_input_files(cut)
    page.locator(".sd-problem", has_text="cannot be read").wait_for()
    assert page.locator(".sd-badge").inner_text() == "recorded"
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text("hello", encoding="utf-8")
    page.locator(".sd-tools input[type=file]").set_input_files(foreign)
    page.locator(".sd-problem", has_text="is not a trace").wait_for()


def test_a_run_that_shared_its_passes_is_marked(same_page):
    page = same_page
    run(page, "shared")
    finished(page)
    page.locator(".sd-shared", has_text="up to 3 runs shared the model").wait_for()
    run(page, "hello")
    finished(page)
    page.locator(".sd-shared").wait_for(state="hidden")


def batch(page, *prompts):
    box = page.locator("#sd-batch-prompts textarea")
    if not box.is_visible():
        page.locator(".sd-menu summary").click()
        page.locator(".sd-batch-entry").click()
        # The content of an opened part is created then, and changes its first values a moment after it is visible.
        page.locator("#sd-batch .sd-batch").wait_for(state="attached")
        page.wait_for_timeout(1000)
    box.fill("\n".join(prompts))
    page.get_by_role("button", name="Run all").click()


def test_answers_to_several_prompts_are_text_with_a_total(page):
    hostile = "<img src=x onerror=window.hacked=1>"
    batch(page, hostile, "fail", "hello")
    total = page.locator(".sd-batch-total", has_text="3 prompts, 32 tokens, ")
    total.wait_for()
    cards = page.locator("#sd-batch li")
    assert cards.locator("h4").all_inner_texts() == [hostile, "fail", "hello"]
    states = page.locator(".sd-batch-state").all_inner_texts()
    assert states == ["done", "failed", "done"]
    text = cards.first.inner_text()
    for token in ("<img src=x onerror=1>", "${6*7}", "C:\\users", "[RLO]evil", "<script>"):
        assert token in text
    assert cards.nth(1).locator(".sd-batch-error").inner_text() == (
        "It happened. All is well. Try again."
    )
    assert cards.nth(2).locator(".sd-batch-rate").inner_text().endswith("tok/s")
    assert page.locator("#sd-batch img, #sd-batch script").count() == 0
    assert page.evaluate("window.hacked") is None

    batch(page, "forever", "forever", "hello")
    page.locator(".sd-batch-running .sd-batch-text", has_text="C:").nth(1).wait_for()
    page.get_by_role("button", name="Stop all").click()
    page.locator(".sd-batch-total", has_text="3 prompts").wait_for()
    assert page.locator(".sd-batch-stopped").count() == 2

    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
    batch(page)
    page.locator(".sd-batch-total", has_text="There are no prompts.").wait_for()
