//! A cache of tokens from OAuth2 servers. Each token is kept until it expires.
//!
//! Servers choose the length and the lifetime of tokens. So the length of each token and the number of tokens of each
//! namespace are bounded. No namespace uses the tokens of another.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The maximum length of a token, in bytes. Few servers accept a longer header.
const MAX_TOKEN: usize = 16 << 10;
/// The maximum total length of a token request's parameters, in bytes.
const MAX_KEY_BYTES: usize = 32 << 10;
/// The maximum number of tokens that are kept for one namespace.
const MAX_TOKENS_PER_NAMESPACE: usize = 64;
/// The maximum number of tokens that are kept for all namespaces together.
const MAX_TOKENS: usize = 1_024;

/// The key under which a token is cached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    namespace: String,
    /// All parameters of the token's request.
    parameters: String,
}

impl TokenKey {
    /// The key of a token that is requested with these parameters.
    pub(super) fn new(namespace: &str, parameters: &[&str]) -> Result<Self, String> {
        let parameters = parameters.join("\n");
        match parameters.len() {
            0..=MAX_KEY_BYTES => Ok(TokenKey { namespace: namespace.to_owned(), parameters }),
            _ => Err(format!(
                "tokenUrl, scopes, clientId and clientSecret are longer than {} KiB in total",
                MAX_KEY_BYTES >> 10
            )),
        }
    }
}

struct Token {
    value: String,
    expires_at: Instant,
}

/// The tokens of all namespaces.
#[derive(Default)]
pub(super) struct Tokens {
    known: Mutex<HashMap<TokenKey, Token>>,
}

impl Tokens {
    /// A token that is still valid.
    pub(super) fn get(&self, key: &TokenKey) -> Option<String> {
        let known = self.lock();
        let token = known.get(key)?;
        (token.expires_at > Instant::now()).then(|| token.value.clone())
    }

    pub(super) fn keep(
        &self,
        key: &TokenKey,
        value: &str,
        expires_at: Instant,
    ) -> Result<(), String> {
        if value.len() > MAX_TOKEN {
            let max = MAX_TOKEN >> 10;
            return Err(format!("the access_token is longer than {max} KiB"));
        }
        let now = Instant::now();
        let mut known = self.lock();
        known.remove(key);
        known.retain(|_, token| token.expires_at > now);
        if let Some(crowded) = crowded_namespace(&known, &key.namespace) {
            forget_one(&mut known, &crowded);
        }
        let value = value.to_owned();
        known.insert(key.clone(), Token { value, expires_at });
        Ok(())
    }

    /// Forgets a token that was refused.
    pub(super) fn forget(&self, key: &TokenKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenKey, Token>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The namespace that must lose a token before `namespace` gets one more: `namespace` itself if it has reached
/// [`MAX_TOKENS_PER_NAMESPACE`]; otherwise, if there are [`MAX_TOKENS`] in total, the namespace with the most tokens.
/// None if no token must be removed.
fn crowded_namespace(known: &HashMap<TokenKey, Token>, namespace: &str) -> Option<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for key in known.keys() {
        *counts.entry(&key.namespace).or_default() += 1;
    }
    if counts.get(namespace).is_some_and(|count| *count >= MAX_TOKENS_PER_NAMESPACE) {
        return Some(namespace.to_owned());
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let (most, _) = most.filter(|_| known.len() >= MAX_TOKENS)?;
    Some(most.to_owned())
}

/// Forgets one token of a namespace: the one that expires first.
fn forget_one(known: &mut HashMap<TokenKey, Token>, namespace: &str) {
    let tokens = known.iter().filter(|(key, _)| key.namespace == namespace);
    let first = tokens.min_by_key(|(_, token)| token.expires_at);
    if let Some(key) = first.map(|(key, _)| key.clone()) {
        known.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(namespace: &str, number: usize) -> TokenKey {
        TokenKey::new(namespace, &["http://tokens", &number.to_string()]).expect("a key")
    }

    fn keep(tokens: &Tokens, key: &TokenKey, seconds: u64) {
        let expires_at = Instant::now() + Duration::from_secs(seconds);
        tokens.keep(key, "t0ken", expires_at).expect("kept");
    }

    fn count(tokens: &Tokens) -> usize {
        tokens.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_kept_until_it_expires() {
        let tokens = Tokens::default();
        keep(&tokens, &key("games", 0), 10);
        assert_eq!(tokens.get(&key("games", 0)).as_deref(), Some("t0ken"));
        assert_eq!(tokens.get(&key("other", 0)), None);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(tokens.get(&key("games", 0)), None);
        keep(&tokens, &key("other", 0), 10);
        assert_eq!(count(&tokens), 1, "the expired token is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_a_bounded_number_of_tokens() {
        let tokens = Tokens::default();
        keep(&tokens, &key("games", 0), 10);
        for number in 0..2 * MAX_TOKENS_PER_NAMESPACE {
            keep(&tokens, &key("greedy", number), 1_000 + number as u64);
        }
        assert_eq!(count(&tokens), 1 + MAX_TOKENS_PER_NAMESPACE);
        assert!(tokens.get(&key("games", 0)).is_some());
        assert!(tokens.get(&key("greedy", 2 * MAX_TOKENS_PER_NAMESPACE - 1)).is_some());
        assert!(tokens.get(&key("greedy", 0)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn many_greedy_namespaces_cannot_evict_the_token_of_another() {
        let tokens = Tokens::default();
        keep(&tokens, &key("games", 0), 10);
        for number in 0..2 * MAX_TOKENS {
            let namespace = format!("greedy-{}", number % 32);
            keep(&tokens, &key(&namespace, number), 1_000);
        }
        assert_eq!(count(&tokens), MAX_TOKENS);
        assert!(tokens.get(&key("games", 0)).is_some());
    }

    #[tokio::test]
    async fn tokens_and_the_parameters_of_their_requests_are_bounded() {
        let tokens = Tokens::default();
        let long = "x".repeat(MAX_TOKEN + 1);
        let result = tokens.keep(&key("games", 0), &long, Instant::now());
        assert_eq!(result, Err("the access_token is longer than 16 KiB".into()));
        assert_eq!(count(&tokens), 0);
        assert!(TokenKey::new("games", &[&"x".repeat(MAX_KEY_BYTES)]).is_ok());
        assert!(TokenKey::new("games", &["", &"x".repeat(MAX_KEY_BYTES)]).is_err());
    }
}
