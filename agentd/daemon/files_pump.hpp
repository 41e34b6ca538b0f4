// SPDX-License-Identifier: GPL-2.0-or-later
// FilesPump: carries the bytes of a job's files both ways between a local socket (to the client at
// the guest, to the server at the home) and a connection with the other agentd, and holds each side
// back as the other does. Also: how souk-files is started. Owned by GuestFiles and HomeFiles.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/program.hpp"
#include "kernel/wire/channel.hpp"

namespace souk {

// Counts the bytes of all pumps that count in it.
struct FilesCount {
    uint64_t out_bytes = 0, in_bytes = 0;  // to and from the channel
};

class FilesPump {
  public:
    // `ended`, once: one of both is gone. Neither the channel nor this may be used after that.
    // `count`: null, or it outlives this.
    FilesPump(Loop& loop, wire::Channel& channel, Fd local, FilesCount* count,
              std::function<void(const std::string& why)> ended);
    FilesPump(const FilesPump&) = delete;
    // Takes the bytes that the channel brings (Channel::receive_raw).
    void take(ByteView bytes);

  private:
    void local_ready(short events);
    void read_local();
    void write_local();
    void send();
    void watch_local();
    void end(const std::string& why);

    Loop& loop_;
    wire::Channel& channel_;
    Fd local_;
    FilesCount* count_;
    std::function<void(const std::string&)> ended_;
    Bytes out_, in_;  // to the channel, to the local socket
    size_t out_sent_ = 0, in_sent_ = 0;
    Watch local_watch_, channel_watch_;
    Timer end_;
    bool over_ = false;
};

// As souk-files takes groups.
std::string group_words(const std::vector<uint32_t>& groups);
// Starts souk-files with these descriptors from 3 on (`session`: in a session of its own), and
// kills it.
struct StartFiles {
    std::function<Result<Pidfd>(const std::vector<std::string>& words, const std::vector<int>& fds,
                                bool session)>
        start;
    EndProgram end = kill_program;
    Result<Pidfd> operator()(const std::vector<std::string>& words, const std::vector<int>& fds,
                             bool session) const {
        return start(words, fds, session);
    }
};

}  // namespace souk
