//! What the documents show is what is tested: their examples are the files in `examples`.

use std::fs;
use std::path::Path;

#[test]
fn the_page_on_hooks_shows_the_examples_as_they_are() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(top.join(path)).expect("a file");
    let page = read("docs/hooks.md");
    for provider in ["web", "prometheus", "kubernetes", "job"] {
        let example = read(&format!("examples/hooks/hook-template-{provider}.yaml"));
        assert!(
            page.contains(&format!("```yaml\n{example}```\n")),
            "docs/hooks.md shows another example of {provider}"
        );
    }
}
