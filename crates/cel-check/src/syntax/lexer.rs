//! The words of an expression, and where each begins.

use crate::report::Found;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    /// A name or a keyword.
    Name(String),
    /// A name of a field in backquotes.
    Quoted(String),
    Int,
    Uint,
    Double,
    String(String),
    Bytes,
    /// An operator, or a bracket.
    Symbol(&'static str),
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) word: Word,
}

/// The longer come first.
const SYMBOLS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

struct Lexer<'a> {
    letters: &'a [char],
    at: usize,
}

pub(super) fn words(letters: &[char]) -> Result<Vec<Token>, Found> {
    let mut lexer = Lexer { letters, at: 0 };
    let mut words = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let word = lexer.word()?;
        let is_end = word == Word::End;
        words.push(Token { at, word });
        if is_end {
            return Ok(words);
        }
    }
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, letter)| self.peek(ahead) == Some(letter))
    }

    fn take_while(&mut self, is: impl Fn(char) -> bool) -> usize {
        let start = self.at;
        while self.peek(0).is_some_and(&is) {
            self.at += 1;
        }
        self.at - start
    }

    fn skip_blanks(&mut self) {
        loop {
            let blanks = self.take_while(|letter| matches!(letter, ' ' | '\t' | '\r' | '\n' | '\x0c'));
            if self.starts_with("//") {
                self.take_while(|letter| letter != '\n');
            } else if blanks == 0 {
                return;
            }
        }
    }

    fn word(&mut self) -> Result<Word, Found> {
        let Some(letter) = self.peek(0) else { return Ok(Word::End) };
        if let Some(word) = self.string()? {
            return Ok(word);
        }
        if letter.is_ascii_digit() || letter == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit())
        {
            return self.number();
        }
        if letter.is_ascii_alphabetic() || letter == '_' {
            let start = self.at;
            self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            return Ok(Word::Name(self.letters[start..self.at].iter().collect()));
        }
        if letter == '`' {
            let start = self.at + 1;
            self.at = start;
            let quotable = |letter: char| letter.is_ascii_alphanumeric() || "_.-/ ".contains(letter);
            let taken = self.take_while(quotable);
            if taken > 0 && self.peek(0) == Some('`') {
                self.at += 1;
                return Ok(Word::Quoted(self.letters[start..start + taken].iter().collect()));
            }
            self.at = start - 1;
        }
        let symbol = SYMBOLS.into_iter().find(|symbol| self.starts_with(symbol));
        let Some(symbol) = symbol else {
            return Err(Found::syntax(
                self.at,
                format!("Syntax error: token recognition error at: '{letter}'"),
            ));
        };
        self.at += symbol.len();
        Ok(Word::Symbol(symbol))
    }

    fn number(&mut self) -> Result<Word, Found> {
        let start = self.at;
        if self.starts_with("0x") && self.peek(2).is_some_and(|digit| digit.is_ascii_hexdigit()) {
            self.at += 2;
            self.take_while(|digit| digit.is_ascii_hexdigit());
            let digits: String = self.letters[start + 2..self.at].iter().collect();
            return self.integer(start, u64::from_str_radix(&digits, 16).ok());
        }
        self.take_while(|digit| digit.is_ascii_digit());
        let mut is_double = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|digit| digit.is_ascii_digit()) {
            self.at += 1;
            self.take_while(|digit| digit.is_ascii_digit());
            is_double = true;
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + signed).is_some_and(|digit| digit.is_ascii_digit()) {
                self.at += 1 + signed;
                self.take_while(|digit| digit.is_ascii_digit());
                is_double = true;
            }
        }
        if is_double {
            return Ok(Word::Double);
        }
        let digits: String = self.letters[start..self.at].iter().collect();
        self.integer(start, digits.parse().ok())
    }

    fn integer(&mut self, start: usize, value: Option<u64>) -> Result<Word, Found> {
        let unsigned = matches!(self.peek(0), Some('u' | 'U'));
        self.at += usize::from(unsigned);
        // One more than the largest: it may come after a minus.
        let fits = value.is_some_and(|value| unsigned || value <= 1 << 63);
        match (fits, unsigned) {
            (true, true) => Ok(Word::Uint),
            (true, false) => Ok(Word::Int),
            (false, true) => Err(Found::syntax(start, "invalid uint literal")),
            (false, false) => Err(Found::syntax(start, "invalid int literal")),
        }
    }

    /// A string, or bytes, with its prefix and quotes.
    fn string(&mut self) -> Result<Option<Word>, Found> {
        let (mut ahead, mut raw, mut bytes) = (0, false, false);
        if matches!(self.peek(ahead), Some('b' | 'B')) {
            (bytes, ahead) = (true, ahead + 1);
        }
        if matches!(self.peek(ahead), Some('r' | 'R')) {
            (raw, ahead) = (true, ahead + 1);
        }
        let Some(quote) = self.peek(ahead).filter(|letter| matches!(letter, '\'' | '"')) else {
            return Ok(None);
        };
        let start = self.at;
        self.at += ahead;
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let quotes = if triple { 3 } else { 1 };
        self.at += quotes;
        let mut value = String::new();
        loop {
            let Some(letter) = self.peek(0) else { return Err(unrecognized(start, quote)) };
            let ends = (0..quotes).all(|ahead| self.peek(ahead) == Some(quote));
            if ends {
                self.at += quotes;
                return Ok(Some(if bytes { Word::Bytes } else { Word::String(value) }));
            }
            if !triple && matches!(letter, '\n' | '\r') {
                return Err(unrecognized(start, quote));
            }
            self.at += 1;
            if letter == '\\' && !raw {
                value.extend(self.escape(bytes)?);
            } else {
                value.push(letter);
            }
        }
    }

    /// What an escape stands for; the backslash is behind us. Of bytes nobody asks for the value.
    fn escape(&mut self, bytes: bool) -> Result<Option<char>, Found> {
        let at = self.at - 1;
        let invalid = || Found::syntax(at, "Syntax error: token recognition error: invalid escape");
        let letter = self.peek(0).ok_or_else(invalid)?;
        self.at += 1;
        let (digits, radix) = match letter {
            'a' => return Ok(Some('\x07')),
            'b' => return Ok(Some('\x08')),
            'f' => return Ok(Some('\x0c')),
            'n' => return Ok(Some('\n')),
            'r' => return Ok(Some('\r')),
            't' => return Ok(Some('\t')),
            'v' => return Ok(Some('\x0b')),
            '\\' | '\'' | '"' | '`' | '?' => return Ok(Some(letter)),
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(invalid()),
        };
        let mut value = 0_u32;
        for _ in 0..digits {
            let digit = self.peek(0).and_then(|digit| digit.to_digit(radix)).ok_or_else(invalid)?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.at += 1;
        }
        if bytes { Ok(None) } else { char::from_u32(value).map(Some).ok_or_else(invalid) }
    }
}

fn unrecognized(at: usize, quote: char) -> Found {
    Found::syntax(at, format!("Syntax error: token recognition error at: '{quote}'"))
}
