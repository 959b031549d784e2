//! "Did you mean": the known word that is most similar to a mistyped one.

/// The most similar of these words, if it is similar enough.
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
