//! Elements of DER as a tree that can be changed, and encoded in forms that are no DER.

/// An element.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) tag: u8,
    pub(super) length: Length,
    content: Content,
}

/// How the length of an element is written.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Shortest,
    /// With a zero in front.
    Long,
    /// Without a length; the content ends with two zeros.
    Indefinite,
    /// By one too long.
    More,
    /// By one too short.
    Less,
}

#[derive(Clone)]
enum Content {
    Bytes(Vec<u8>),
    Nodes(Vec<Node>),
}

impl Node {
    /// Parses an element of good DER.
    pub(super) fn parse(der: &[u8]) -> Self {
        let (node, rest) = Self::next(der).unwrap();
        assert!(rest.is_empty());
        node
    }

    /// Parses an element; what is none becomes one that is encoded as these bytes.
    pub(super) fn parse_or_bytes(der: &[u8]) -> Self {
        match Self::next(der) {
            Some((node, [])) => node,
            _ => Self { tag: der[0], length: Length::Shortest, content: Content::Bytes(der[2..].to_vec()) },
        }
    }

    /// Whether it is encoded as an element.
    pub(super) fn parses(&self) -> bool {
        let encoded = self.encode();
        matches!(Self::next(&encoded), Some((_, [])))
    }

    fn next(der: &[u8]) -> Option<(Self, &[u8])> {
        let [tag, first, rest @ ..] = der else { return None };
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let nodes = || {
            let (mut nodes, mut rest) = (Vec::new(), content);
            while !rest.is_empty() {
                let (node, after) = Self::next(rest)?;
                nodes.push(node);
                rest = after;
            }
            Some(Content::Nodes(nodes))
        };
        // Values of extensions are elements, too.
        let is_nested = tag & 0x20 != 0 || *tag == 4 && content.first() == Some(&0x30);
        let content = is_nested.then(nodes).flatten().unwrap_or_else(|| Content::Bytes(content.to_vec()));
        Some((Self { tag: *tag, length: Length::Shortest, content }, rest))
    }

    pub(super) fn content(&self) -> Vec<u8> {
        match &self.content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Nodes(nodes) => nodes.iter().flat_map(Self::encode).collect(),
        }
    }

    pub(super) fn set_bytes(&mut self, bytes: Vec<u8>) {
        self.content = Content::Bytes(bytes);
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let content = self.content();
        let length = match self.length {
            Length::Less => content.len().saturating_sub(1),
            Length::More => content.len() + 1,
            _ => content.len(),
        };
        let bytes = (length as u32).to_be_bytes();
        let skip = bytes.iter().take_while(|byte| **byte == 0).count();
        let mut der = vec![self.tag];
        match self.length {
            Length::Indefinite => der.push(0x80),
            Length::Long => {
                der.push(0x84);
                der.extend(bytes);
            }
            _ if length < 0x80 => der.push(length as u8),
            _ => {
                der.push(0x80 | (4 - skip) as u8);
                der.extend(&bytes[skip..]);
            }
        }
        der.extend(content);
        if matches!(self.length, Length::Indefinite) {
            der.extend([0, 0]);
        }
        der
    }

    /// The elements within; an element without any gets none.
    pub(super) fn children(&mut self) -> &mut Vec<Self> {
        if let Content::Bytes(_) = self.content {
            self.content = Content::Nodes(Vec::new());
        }
        match &mut self.content {
            Content::Nodes(nodes) => nodes,
            Content::Bytes(_) => unreachable!("it was replaced"),
        }
    }

    /// The ways to all elements, each by its positions from the root on.
    pub(super) fn paths(&self) -> Vec<Vec<usize>> {
        let mut paths = vec![Vec::new()];
        if let Content::Nodes(nodes) = &self.content {
            for (at, node) in nodes.iter().enumerate() {
                paths.extend(node.paths().into_iter().map(|path| [vec![at], path].concat()));
            }
        }
        paths
    }

    pub(super) fn at(&mut self, path: &[usize]) -> &mut Self {
        path.iter().fold(self, |node, at| &mut node.children()[*at])
    }

    /// The elements within the one at a path, if there is one with elements.
    pub(super) fn find(&mut self, path: &[usize]) -> Option<&mut Vec<Self>> {
        let node = path.iter().try_fold(self, |node, at| match &mut node.content {
            Content::Nodes(nodes) => nodes.get_mut(*at),
            Content::Bytes(_) => None,
        })?;
        match &mut node.content {
            Content::Nodes(nodes) => Some(nodes),
            Content::Bytes(_) => None,
        }
    }

    /// The extensions that the last attribute with any requests.
    pub(super) fn extensions(&mut self) -> Option<&mut Vec<Self>> {
        let path = self.path_behind(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14])?;
        self.find(&[&path[..], &[0]].concat())
    }

    /// The alternative names of the last extension with any.
    pub(super) fn names(&mut self) -> Option<&mut Vec<Self>> {
        let path = self.path_behind(&[0x55, 0x1d, 0x11])?;
        self.find(&[&path[..], &[0]].concat())
    }

    /// The way to the element behind the last object identifier of this content.
    fn path_behind(&mut self, identifier: &[u8]) -> Option<Vec<usize>> {
        let paths = self.paths();
        let found = paths.into_iter().rev().find(|path| {
            let node = self.at(path);
            node.tag == 6 && matches!(&node.content, Content::Bytes(bytes) if bytes == identifier)
        });
        let mut path = found?;
        *path.last_mut()? += 1;
        Some(path)
    }
}
