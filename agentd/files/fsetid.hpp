// SPDX-License-Identifier: GPL-2.0-or-later
// The one right of root's by which a change of a file by somebody else would leave it a set-user-ID
// program (CAP_FSETID), put aside and taken up again. The others that this process may have are in
// effect. Of who has none it changes nothing.
#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace souk::files {

inline void use_fsetid(bool on) {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights[2] = {};
    if (::syscall(SYS_capget, &head, rights) != 0) return;
    for (auto& word : rights) word.effective = word.permitted;
    if (!on) rights[0].effective &= ~(1U << CAP_FSETID);
    (void)::syscall(SYS_capset, &head, rights);
}

}  // namespace souk::files
