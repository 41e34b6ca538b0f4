// SPDX-License-Identifier: GPL-2.0-or-later
// Client: the FUSE server of a capsule's root, in a process outside of the job's tree. It relays
// what its kernel asks to the home's server, and the answers back; it knows nothing of files. What
// it has taken stands in Slots, so it may die at any moment, and the one that is started in its
// place goes on; meanwhile calls of the job wait. The same when the stream to the home breaks: a
// new client, or a new stream, sends again what has no answer, by the same numbers.
//
// The client itself answers INIT (what this kernel is offered, once the server has said whether it
// takes locks), INTERRUPT (a call that a signal
// interrupts, and that has waited for an answer for long, ends with EINTR; its late answer is
// undone), and writes, ahead of the home (write_behind.hpp).
#pragma once

#include <functional>

#include "agentd/files/slots.hpp"
#include "agentd/files/talk.hpp"

namespace souk::files {

struct ClientOptions {
    int fuse = -1;   // /dev/fuse, of the mount
    int slots = -1;  // Slots::make
    // A SOCK_SEQPACKET to who keeps the mount. From it come streams to the server (SCM_RIGHTS, each
    // attached already; the newest counts) and sockets to the store of contents, and its end is the
    // client's. One byte goes back when a stream has ended.
    int control = -1;
    uint32_t uid = 0, gid = 0;  // of the job, here
};

// Runs until the keeper or the mount ends. Fails if something is wrong with them.
Status run_client(const ClientOptions& options);
// Gives a client a stream. The descriptor may be closed then.
Status give_stream(int control, int stream);
// Gives the client a socket to the node's store of contents (store.hpp). The descriptor may be
// closed then.
Status give_store(int control, int store);
// Asks it to write one byte to `who`, a socket, when all that was written so far is at home
// (AheadWrites::ask). Its end without one: the client has died, and the next is to be asked.
Status ask_home(int control, int who);
// Gives the client a list of files that are about to be looked up, and to be opened (`opens`). The
// descriptor may be closed then.
Status give_expected(int control, int list, bool opens);

// The answer to FUSE_INIT; `locks`: those of files are the home's, else the kernel's own. Nothing:
// a kernel that is too old (before 4.20).
Result<Bytes> answer_init(ByteView request, bool locks);

}  // namespace souk::files
