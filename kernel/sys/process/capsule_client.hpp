// SPDX-License-Identifier: GPL-2.0-or-later
// CapsuleClient: agentd's end of the connection to one souk-init. Never blocks: poll fd() for
// reading, call on_readable; while wants_write(), poll for writing too and call on_writable. Sends
// are queued up to a bound. Begin with hello(): souk-init answers with welcome, then tells
// everything again that was not acknowledged. After `closed` or an error the client is of no more
// use: connect again (Capsule::connect) and say hello with the offsets that are safe.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/init_codec.hpp"

namespace souk {

class CapsuleClient {
  public:
    struct Event : InitEvent {
        std::vector<Fd> fds;  // prepared: stdin, stdout, stderr of the job; or its terminal
    };

    CapsuleClient() = default;
    explicit CapsuleClient(Fd connection);

    int fd() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }
    bool wants_write() const { return !queue_.empty(); }
    // Returns at most `records_max` messages; call again while the socket is readable. The last
    // event is `closed` at its end. Error: a message that souk-init would not send.
    Result<std::vector<Event>> on_readable(size_t records_max = 32);
    Status on_writable();

    // Output before these offsets is safe at the home node: 0 for a new job.
    Status hello(uint64_t stdout_from, uint64_t stderr_from) {
        return send(SOUK_HELLO, 0, 0, stdout_from, stderr_from);
    }
    // `cgroup`: a v2 group of the job's own, below or beside that of souk-init, which must stay
    // awake when it is frozen. `filter`: of its system calls (syscall_filter.hpp).
    // `hold`: up to its program, which waits for release().
    Status start(const LaunchSpec& spec, int cgroup = -1, int filter = -1, bool hold = false);
    Status release() { return send(SOUK_RELEASE); }
    Status ack(uint32_t stream, uint64_t offset) { return send(SOUK_ACK, stream, 0, offset); }
    // Sends at most SOUK_DATA_MAX bytes, and none beyond the limit of the last input_taken (or
    // welcome): those would be lost.
    Status input(uint64_t offset, std::string_view bytes) {
        return send(SOUK_INPUT, 0, 0, offset, 0, bytes);
    }
    Status input_eof(uint64_t offset) { return send(SOUK_INPUT_EOF, 0, 0, offset); }
    Status window_size(uint16_t rows, uint16_t cols) { return send(SOUK_WINCH, rows, cols); }
    Status signal(int number, souk_target target) { return send(SOUK_SIGNAL, target, number); }
    // Call these before CRIU enters, and after. Answer: helpers_ready.
    Status helpers_enter(bool restore) { return send(SOUK_HELPERS_ENTER, 0, restore); }
    Status helpers_leave() { return send(SOUK_HELPERS_LEAVE); }
    // Call it at post_dump, while the job is held. Writes souk-residue and souk-shm. Answer:
    // drained.
    Status drain(int image_dir) { return send(SOUK_DRAIN, 0, 0, 0, 0, {}, image_dir); }
    // The dump is refused: say this, then refuse. (Or after a restart of agentd.)
    Status undrain() { return send(SOUK_UNDRAIN); }
    // A fresh capsule for a restore. Answer: prepared, with the job's ends for CRIU.
    Status prepare(bool tty) { return send(SOUK_PREPARE, 0, tty); }
    // Call it after prepare, when the image is there. Answer: loaded, with the residue (names of
    // the old ends).
    Status load(int image_dir) { return send(SOUK_LOAD, 0, 0, 0, 0, {}, image_dir); }
    Status restored() { return send(SOUK_RESTORED); }
    // A copy of `fd` stays open in souk-init until let_go(). At most SOUK_KEPT_MAX.
    Status keep(int fd) { return send(SOUK_KEEP, 0, 0, 0, 0, {}, fd); }
    Status let_go() { return send(SOUK_LET_GO); }
    // `freezer` and `word` stop the job (Cgroup::open_freezer): souk-init does so at `until_ns` of
    // CLOCK_BOOTTIME.
    Status lease(uint64_t until_ns, int freezer, std::string_view word) {
        return send(SOUK_LEASE, 0, 0, until_ns, 0, word, freezer);
    }
    // Ends souk-init and whatever is left in the capsule.
    Status quit() { return send(SOUK_QUIT); }

  private:
    struct Record {
        std::string bytes;
        std::vector<Fd> fds;
    };
    Status send(souk_type type, uint32_t stream = 0, int32_t value = 0, uint64_t offset = 0,
                uint64_t limit = 0, std::string_view bytes = {}, int fd = -1, int second_fd = -1,
                int third_fd = -1);

    Fd fd_;
    std::deque<Record> queue_;
    size_t queued_bytes_ = 0;
};

}  // namespace souk
