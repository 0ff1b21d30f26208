use proptest::prelude::*;

use super::*;

fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn whole(markdown: &str) -> String {
    render(markdown, false, later()).unwrap().html
}

/// Every tag of the result with its attributes.
fn tags(html: &str) -> Vec<&str> {
    html.split('<').skip(1).map(|piece| piece.split_once('>').map_or(piece, |(tag, _)| tag)).collect()
}

/// Fails for anything that a browser would run, load or be styled by.
fn check_harmless(html: &str, markdown: &str) {
    let names = [
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "div",
        "em",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "span",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ];
    for tag in tags(html) {
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(names.contains(&name.trim_start_matches('/')), "<{tag}> from {markdown:?}");
        // Values have no blanks but in classes and `rel`, and quotes inside them are escaped.
        for (at, value) in attributes.split('"').enumerate() {
            let is_name = at % 2 == 0;
            let known = ["", "href=", "class=", "start=", "rel=", "target="];
            assert!(!is_name || known.contains(&value.trim()), "<{tag}> from {markdown:?}");
        }
        if let Some((_, rest)) = attributes.split_once("href=\"") {
            let schemes = ["http:", "https:", "mailto:"];
            let url = rest.to_lowercase();
            assert!(schemes.iter().any(|scheme| url.starts_with(scheme)), "<{tag}> from {markdown:?}");
            assert!(attributes.contains("rel=\"noopener noreferrer nofollow\""), "<{tag}> from {markdown:?}");
            assert!(attributes.contains("target=\"_blank\""), "<{tag}> from {markdown:?}");
        }
    }
    assert_eq!(CLEANER.clean(html).to_string(), html, "not stable: {markdown:?}");
}

/// An answer looks wrong.
#[test]
fn markdown_becomes_html() {
    let link = "target=\"_blank\" rel=\"noopener noreferrer nofollow\"";
    let cases = [
        ("# a\n\n###### b", "<h2>a</h2>\n<h6>b</h6>\n".to_owned()),
        ("a *b* **c** ~~d~~ `e`", "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code></p>\n".into()),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n".into()),
        ("3. a", "<ol start=\"3\">\n<li>a</li>\n</ol>\n".into()),
        ("- [x] a\n- [ ] b", "<ul>\n<li>☑ a</li>\n<li>☐ b</li>\n</ul>\n".into()),
        ("> a", "<blockquote>\n<p>a</p>\n</blockquote>\n".into()),
        ("[a](https://b.c \"d\")", format!("<p><a href=\"https://b.c\" {link}>a</a></p>\n")),
        ("<a@b.c>", format!("<p><a href=\"mailto:a@b.c\" {link}>a@b.c</a></p>\n")),
        ("![a](https://b.c/d.png)", format!("<p><a href=\"https://b.c/d.png\" {link}>image: a</a></p>\n")),
        ("[![a](https://b.c)](https://d.e)", format!("<p><a href=\"https://d.e\" {link}>image: a</a></p>\n")),
        ("a<br>b <b>c</b>", "<p>a<br>\nb &lt;b&gt;c&lt;/b&gt;</p>\n".into()),
        ("<div>\na\n</div>", "<p>&lt;div&gt;\na\n&lt;/div&gt;</p>\n".into()),
        ("$a_b$ $$c<d$$", "<p><code class=\"math\">$a_b$</code> <code class=\"math\">$$c&lt;d$$</code></p>\n".into()),
        (
            "|a|b|\n|-|-:|\n|c|d|",
            "<div class=\"table\"><table><thead><tr><th>a</th><th class=\"right\">b</th></tr></thead><tbody>\n\
             <tr><td>c</td><td class=\"right\">d</td></tr>\n</tbody></table>\n</div>\n"
                .into(),
        ),
        (
            "```\n<a>\n```",
            "<div class=\"code\"><div class=\"code-head\"><span>text</span></div>\
             <pre><code>&lt;a&gt;\n</code></pre></div>\n"
                .into(),
        ),
        (
            "```rust,ignore\nfn",
            "<div class=\"code\"><div class=\"code-head\"><span>rust</span></div>\
             <pre><code><span class=\"hl-keyword\">fn</span></code></pre></div>\n"
                .into(),
        ),
        ("", String::new()),
    ];
    for (markdown, html) in cases {
        assert_eq!(whole(markdown), html, "{markdown:?}");
        check_harmless(&html, markdown);
    }
}

/// Text of a model runs in the reader's browser.
#[test]
fn hostile_text_is_harmless() {
    let cases = [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "<a href=\"javascript:alert(1)\" onclick=\"x\">a</a>",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](java\tscript:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](\\javascript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "[a](vbscript:x) ![b](javascript:x) <javascript:alert(1)>",
        "[a](/v1/models) [b](//host/x) [c](?q)",
        "[a](https://b.c/\"onmouseover=\"alert(1))",
        "![\"onerror=\"alert(1)](https://b.c)",
        "```\"><script>alert(1)</script>\na\n```",
        "```html\n</code></pre><script>alert(1)</script>\n```",
        "`</code><script>alert(1)</script>`",
        "$</code><script>alert(1)</script>$",
        "|<script>|\n|-|\n|</table><script>alert(1)</script>|",
        "<!-- --><script>alert(1)</script><![CDATA[<script>]]>",
        "<style>@import 'https://b.c';</style><base href=https://b.c><iframe src=https://b.c></iframe>",
        "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
        "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
        "# a {onclick=alert(1) #id .class}",
        "<form action=https://b.c><button>a</button></form>",
        "\u{0}<scr\u{0}ipt>alert(1)</script>",
    ];
    for markdown in cases {
        for open in [false, true] {
            let page = render(markdown, open, later()).unwrap();
            check_harmless(&page.html, markdown);
            check_harmless(&page.tail_html, markdown);
        }
    }
}

/// A text takes the server's time or memory, or breaks the page's layout.
#[test]
fn bounds_hold() {
    let n = MARKDOWN_BYTES_MAX;
    let table = format!("{}\n{}\n{}", "|a".repeat(n / 8), "|-".repeat(n / 8), "|\n".repeat(n / 8));
    let cases = [
        (">".repeat(200) + " a", true),
        (">".repeat(n), false),
        (">a\n".repeat(n / 3), true),
        ("- ".repeat(n / 2), false),
        ("1. ".repeat(n / 3), false),
        ("-".repeat(n), true),
        ("*".repeat(n), true),
        ("*a ".repeat(n / 3), true),
        ("[".repeat(n), true),
        ("[a](".repeat(n / 4), true),
        ("`".repeat(n), true),
        ("![".repeat(n / 2), true),
        ("<".repeat(n), true),
        ("a**".repeat(n / 3), true),
        ("$".repeat(n), true),
        ("```rust\n".to_owned() + &"x(".repeat(n / 4), true),
        (table, true),
    ];
    for (markdown, is_shown) in cases {
        let name = &markdown[..markdown.len().min(20)];
        match render(&markdown, true, later()) {
            Ok(page) => {
                assert!(is_shown, "{name:?} is rendered");
                check_depth(&page.html);
                check_depth(&page.tail_html);
            }
            Err(refused) => assert!(!is_shown, "{name:?}: {refused}"),
        }
    }
    assert!(matches!(render(&"a".repeat(n + 1), true, later()), Err(Refused::TooLong { .. })));
    assert!(matches!(render("a", true, Instant::now()), Err(Refused::TooComplex)));
}

/// Elements inside each other.
fn check_depth(html: &str) {
    let mut depth = 0;
    for tag in tags(html) {
        if tag == "br" || tag == "hr" {
            continue;
        }
        if tag.starts_with('/') {
            depth -= 1;
        } else {
            depth += 1;
        }
        assert!(depth < 2 * DEPTH_MAX, "{depth} elements");
    }
}

/// Pieces that mean something to the parser, the sanitiser or a browser.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(&[
            "\n", "\n\n", " ", "  ", "    ", "\t", "- ", "1. ", "> ", "# ", "```", "```js\n", "~~~", "`", "*", "**", "_",
            "~~", "[", "]", "(", ")", "![", "](", "|", "|-|", "\n|a|b|\n|-|-|\n", "---", "===", "\\", "&", "&lt;", "&#x3c;",
            "$", "$$", "[x] ", "<", ">", "\"", "'", "=", "/", "<!--", "-->", "<![CDATA[", "]]>", "<?", "{#a .b}", "\u{0}",
        ][..]).prop_map(str::to_owned),
        2 => prop::sample::select(&[
            "<script>", "</script>", "<img src=x onerror=alert(1)>", "<svg onload=x>", "<style>", "</style>", "<br>", "<a ",
            " href=", "javascript:", "data:text/html,", "https://a.b", "onclick=x", "<table>", "</table>", "</code>",
            "</pre>", "</div>", "<math>", "<mglyph>", "<noscript>", "<template>", "<iframe src=x>", "<p title='", "alert(1)",
        ][..]).prop_map(str::to_owned),
        2 => "[a-z é𝄞\n]{0,8}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Some mixture of marks lets a script through.
    #[test]
    fn no_script_survives(markdown in pieces(), open: bool) {
        let page = render(&markdown, open, later()).unwrap();
        check_harmless(&page.html, &markdown);
        check_harmless(&page.tail_html, &markdown);
    }

    /// An answer that was shown while it came differs from the same answer shown later.
    #[test]
    fn streamed_and_whole_are_the_same(markdown in pieces(), sizes in prop::collection::vec(1_usize..30, 1..8)) {
        let (mut start, mut end) = (0, 0);
        let mut shown = String::new();
        let mut sizes = sizes.into_iter().cycle();
        while end < markdown.len() {
            end = (end + sizes.next().unwrap()).min(markdown.len());
            while !markdown.is_char_boundary(end) {
                end += 1;
            }
            let page = render(&markdown[start..end], true, later()).unwrap();
            shown += &page.html;
            let units: Vec<u16> = markdown[start..end].encode_utf16().collect();
            start += String::from_utf16(&units[..page.tail_start_utf16]).unwrap().len();
        }
        shown += &whole(&markdown[start..]);
        prop_assert_eq!(shown, whole(&markdown));
    }
}
