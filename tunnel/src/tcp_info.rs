//! What the kernel knows of a TCP connection (`TCP_INFO`, tcp(7)).

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

pub(crate) fn tcp_info(socket: RawFd) -> Option<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which `info` has.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    // SAFETY: all fields are integers, for which zeros are valid; an older kernel writes fewer.
    (result == 0).then(|| unsafe { info.assume_init() })
}
