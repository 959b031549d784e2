//! "Did you mean": the known word that is nearest to a mistyped one.

/// The nearest of these words, if one is near enough to have been meant.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|it| (strsim::damerau_levenshtein(word, it), it))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_word_is_suggested() {
        assert_eq!(closest("gmae", ["world", "game"]), Some("game"));
        assert_eq!(closest("lobby", ["world", "game"]), None);
        assert_eq!(closest("gs", ["gd", "gsts"]), Some("gd"));
    }
}
