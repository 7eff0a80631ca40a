//! JSON read by nobody's library: RFC 8259, numbers as they are written, members in their order and as often as there.

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// Deeper than any reader here goes.
const DEEPEST: usize = 1000;

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// The one value of a text; `None` where it is no JSON.
pub fn read(text: &[u8]) -> Option<Tree> {
    let text = std::str::from_utf8(text).ok()?.as_bytes();
    let mut reader = Reader { text, at: 0 };
    let tree = reader.value(0)?;
    reader.blanks();
    (reader.at == text.len()).then_some(tree)
}

impl Reader<'_> {
    fn blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_there = self.text[self.at..].starts_with(word.as_bytes());
        self.at += if is_there { word.len() } else { 0 };
        is_there
    }

    fn value(&mut self, depth: usize) -> Option<Tree> {
        self.blanks();
        if depth > DEEPEST {
            return None;
        }
        match self.text.get(self.at)? {
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b'"' => Some(Tree::Text(self.string()?)),
            b'n' => self.takes("null").then_some(Tree::Null),
            b't' => self.takes("true").then_some(Tree::Bool(true)),
            b'f' => self.takes("false").then_some(Tree::Bool(false)),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Tree> {
        let mut members = Vec::new();
        self.at += 1;
        self.blanks();
        if self.takes("}") {
            return Some(Tree::Object(members));
        }
        loop {
            self.blanks();
            let key = self.string()?;
            self.blanks();
            self.takes(":").then_some(())?;
            members.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.takes("}") {
                return Some(Tree::Object(members));
            }
            self.takes(",").then_some(())?;
        }
    }

    fn list(&mut self, depth: usize) -> Option<Tree> {
        let mut items = Vec::new();
        self.at += 1;
        self.blanks();
        if self.takes("]") {
            return Some(Tree::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.takes("]") {
                return Some(Tree::List(items));
            }
            self.takes(",").then_some(())?;
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Option<Tree> {
        let start = self.at;
        self.takes("-");
        let zero = self.text.get(self.at) == Some(&b'0');
        let digits = self.digits();
        if digits == 0 || (zero && digits > 1) {
            return None;
        }
        if self.takes(".") && self.digits() == 0 {
            return None;
        }
        if self.takes("e") || self.takes("E") {
            let _ = self.takes("+") || self.takes("-");
            if self.digits() == 0 {
                return None;
            }
        }
        Some(Tree::Number(String::from_utf8_lossy(&self.text[start..self.at]).into_owned()))
    }

    fn string(&mut self) -> Option<String> {
        self.takes("\"").then_some(())?;
        let mut out = Vec::new();
        loop {
            let byte = *self.text.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).ok(),
                b'\\' => {
                    let letter = self.escape()?;
                    out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                0..0x20 => return None,
                byte => out.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                self.takes("\\u").then_some(())?;
                let second = self.hex()?;
                (0xdc00..0xe000).contains(&second).then_some(())?;
                return char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?))
    }
}

impl Tree {
    /// The members of an object.
    pub fn members(&self) -> &[(String, Tree)] {
        if let Tree::Object(members) = self { members } else { &[] }
    }

    /// The items of a list.
    pub fn items(&self) -> &[Tree] {
        if let Tree::List(items) = self { items } else { &[] }
    }

    /// A member of an object.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.members().iter().find(|(there, _)| there == key).map(|(_, value)| value)
    }

    /// What stands at the end of a path of members.
    pub fn at(&self, path: &[&str]) -> Option<&Tree> {
        path.iter().try_fold(self, |tree, key| tree.get(key))
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        if let Tree::Text(text) = self { Some(text) } else { None }
    }

    /// Whether some object in it has a member twice.
    pub fn has_repeats(&self) -> bool {
        let members = self.members();
        let mut keys: Vec<&String> = members.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
            || members.iter().any(|(_, value)| value.has_repeats())
            || self.items().iter().any(Tree::has_repeats)
    }

    /// How deep it goes.
    pub fn depth(&self) -> usize {
        let below = self.members().iter().map(|(_, value)| value).chain(self.items()).map(Tree::depth);
        below.max().unwrap_or(0) + 1
    }

    /// Takes out what stands at the end of a path, and objects on the way that then hold nothing.
    pub fn without(&self, path: &[&str]) -> Option<Tree> {
        let [key, rest @ ..] = path else { return None };
        let Tree::Object(members) = self else { return Some(self.clone()) };
        let kept: Vec<(String, Tree)> = members
            .iter()
            .filter_map(|(name, value)| {
                let value = if name == key { value.without(rest)? } else { value.clone() };
                Some((name.clone(), value))
            })
            .collect();
        // An object that was made for what was put into it, or a null that stood in its place.
        let is_null = |(name, value): &(String, Tree)| name == key && *value == Tree::Null;
        let kept: Vec<_> = kept.into_iter().filter(|member| !is_null(member)).collect();
        (!kept.is_empty()).then_some(Tree::Object(kept))
    }
}
