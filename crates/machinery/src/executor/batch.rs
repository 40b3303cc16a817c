//! Slow start: how many of a batch's writes go out together.

/// The sizes of the groups in which `count` writes are sent: 1, 2, 4 … So a refusal that would meet all of them, such as
/// an exhausted quota, costs few requests, and a large batch still takes few rounds.
pub(super) fn slow_start(count: usize) -> impl Iterator<Item = usize> {
    let mut rest = count;
    let mut next = 1;
    std::iter::from_fn(move || {
        let size = next.min(rest);
        rest -= size;
        next *= 2;
        (size > 0).then_some(size)
    })
}
