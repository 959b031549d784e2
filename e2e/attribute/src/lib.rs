//! The attribute `e2e::test`.

use proc_macro::{TokenStream, TokenTree};

/// Registers a test: an async function from a `&mut Case` to a `Result<()>`. The test's name is the function's path without
/// the crate.
#[proc_macro_attribute]
pub fn test(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens = function.clone().into_iter().skip_while(|token| token.to_string() != "fn");
    let Some(TokenTree::Ident(name)) = tokens.nth(1) else {
        return error("e2e::test is for functions");
    };
    let registration = format!(
        "::e2e::inventory::submit! {{ ::e2e::trial::Test::new(
            ::std::concat!(::std::module_path!(), \"::\", ::std::stringify!({name})),
            ::std::line!(),
            |case| ::std::boxed::Box::pin({name}(case)),
        ) }}"
    );
    match registration.parse::<TokenStream>() {
        Ok(registration) => [function, registration].into_iter().collect(),
        Err(why) => error(&why.to_string()),
    }
}

fn error(why: &str) -> TokenStream {
    format!("::std::compile_error!({why:?});").parse().unwrap_or_default()
}
