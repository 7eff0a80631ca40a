//! The one integration binary.

mod hook_nodes;
