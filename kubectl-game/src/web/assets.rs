//! The files of the page, which are part of the binary.

/// The page itself. It is the same at every address: its script reads the address.
pub const PAGE: &str = include_str!("page/index.html");

/// A file that the page loads.
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset { name: $name, content_type: SCRIPT, text: include_str!(concat!("page/", $name)) }
    };
}

const ASSETS: [Asset; 10] = [
    script!("app.js"),
    script!("actions.js"),
    script!("elements.js"),
    script!("fleet.js"),
    script!("live.js"),
    script!("runs.js"),
    script!("session.js"),
    script!("tiles.js"),
    script!("workload.js"),
    Asset {
        name: "app.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("page/app.css"),
    },
];

/// The file with this name.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_page_is_small() {
        let size = PAGE.len() + ASSETS.iter().map(|asset| asset.text.len()).sum::<usize>();
        assert!(size < 150_000, "{size} bytes");
    }

    #[test]
    fn the_page_interprets_no_text_as_markup() {
        for asset in &ASSETS {
            for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!asset.text.contains(sink), "{} uses {sink}", asset.name);
            }
        }
    }
}
