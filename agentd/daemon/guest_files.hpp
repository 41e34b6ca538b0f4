// SPDX-License-Identifier: GPL-2.0-or-later
// GuestFiles: the clients of the capsules here whose root their home serves (docs/files.md). Each
// has a client, started again when it dies, which gets a stream to the home each time the home
// connects. souk-init keeps the mount; a client ends with its agentd, and the next agentd starts
// another. Owned by the GuestHost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "agentd/core/guest_io.hpp"
#include "agentd/daemon/content_store.hpp"
#include "agentd/daemon/files_pump.hpp"
#include "agentd/daemon/peers.hpp"
#include "kernel/sys/host/device.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/store/network_files.hpp"

namespace souk {

class GuestFiles {
  public:
    // `take`: as Reach has it.
    using Take = std::function<Result<Fd>(const Pidfd&, int)>;
    GuestFiles(Loop& loop, Log& log, Peers& peers, Take take, ContentStoreOptions contents)
        : loop_(loop),
          log_(log),
          peers_(peers),
          take_(std::move(take)),
          start_(contents.start),
          contents_(loop, log, std::move(contents), [this] { give_contents(); }) {}

    // For a capsule that is made: /dev/fuse and the table of requests.
    static Result<std::pair<Fd, Fd>> make(const OpenDevice& open);
    void begin(const GuestJob& job, const Capsule& capsule);
    // The capsule shows this node's own tree instead. Its home hears that it need not serve it.
    void own(const GuestKey& key);
    // These files are about to be looked up (checkpoint/expected_files.hpp), and to be opened
    // (`opens`): the client asks its home for all of them at once.
    void expect(const GuestKey& key, const std::string& list, bool opens);
    // `done`, later: all that the capsule's processes have written is at their home, or all that
    // was changed in the capsule so far is on its disk. A client that dies meanwhile is followed by
    // one that is asked again. Who drops what is returned hears nothing; null: there is no client.
    std::shared_ptr<void> ask_home(const GuestKey& key,
                                   std::function<void(const Result<AtHome>&)> done);
    // Its client is killed, and so the mount ends with the capsule.
    void end(const GuestKey& key);

    // A connection that carries files: from the job's home.
    static bool takes(const wire::Frame& f) { return f.type == wire::frame::files_begin; }
    Status frame(uint64_t connection, const NodeName& home, const wire::Frame& frame);
    void closed(uint64_t connection);

  private:
    struct Client {
        uint32_t uid = 0, gid = 0;
        Pidfd init, process;
        Fd control;
        Watch watch;
        Timer again;
        std::unique_ptr<FilesPump> pump;
    };
    struct Question {
        GuestKey key;
        std::function<void(const Result<AtHome>&)> done;
        Fd answer;
        Watch watch;
        Timer again;
    };
    void ask(Question& q);
    void answered(Question& q);
    void start(const GuestKey& key);
    Status start_now(const GuestKey& key, Client& client);
    void heard(const GuestKey& key);
    void connect(const GuestKey& key);
    Status connect_now(const GuestKey& key, Client& client, uint64_t connection);
    void drop_connection(const GuestKey& key);
    void refuse(const GuestKey& key);
    void give_contents();
    void give_contents(Client& client);

    Loop& loop_;
    Log& log_;
    Peers& peers_;
    const Take take_;
    const StartFiles start_;
    ContentStore contents_;
    std::map<GuestKey, Client> clients_;
    // The connection that its home made last, by capsule. Some of the capsules are yet to come.
    std::map<GuestKey, uint64_t> connections_;
    std::set<GuestKey> own_;
};

}  // namespace souk
