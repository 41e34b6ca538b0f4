// SPDX-License-Identifier: GPL-2.0-or-later
// HomeFiles: the files of this home's jobs that see them wherever they run (srun --files=home,
// docs/files.md). Each such job has a server, a process with its user's rights that outlives this
// daemon; each of its capsules (of a move there are two for a moment) a connection, which is made
// again with a growing pause as long as the capsule may be there. Owned by HomeShell.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/core/files_meter.hpp"
#include "agentd/core/home_io.hpp"
#include "agentd/daemon/bulk_sender.hpp"
#include "agentd/daemon/files_pump.hpp"
#include "agentd/files/talk.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class HomeFiles {
  public:
    // `directory`: of the sockets of the servers.
    // `used` hears now and then how much each job has used, and when it is not reached.
    using Used = std::function<void(const JobId&, const FilesUse&)>;
    HomeFiles(Loop& loop, Log& log, StartFiles start, BulkIdentity own, std::string directory,
              Used used)
        : loop_(loop),
          log_(log),
          start_(std::move(start)),
          own_(std::move(own)),
          directory_(std::move(directory)),
          used_(std::move(used)) {}
    // As the record of a job is now.
    void job(const HomeJob& job);
    void forget(const JobId& id);
    // The job is about to end: `used` hears at once how much it has used.
    void tell_now(const JobId& id);
    // After a restart: all jobs. Servers of others end.
    void recovered(const std::map<uint64_t, HomeJob>& jobs);

  private:
    struct Link {
        Peer peer;
        Way connecting;
        std::unique_ptr<wire::Channel> channel;
        std::unique_ptr<FilesPump> pump;
        files::RequestCount requests;
        Timer retry, away;
        Nanos pause, begun;  // `begun`: when its pump was made
        bool own = false;    // the node has the files itself
        bool heard = false;  // that node has said something
        bool by_gateway = false;
    };
    struct Job {
        uint32_t uid = 0, gid = 0;
        std::vector<uint32_t> groups;
        Epoch epoch;  // of its owner
        FilesUse use;
        FilesCount count, counted;  // since this daemon began; of these so much is in `use`
        FilesMeter meter;
        Timer tell, measure;
        std::map<Epoch, Link> links;
        std::vector<Epoch> left;  // its server has a session of theirs still
    };
    using Key = std::pair<JobId, Epoch>;

    void want(Job& job, const Key& key, const Peer& peer);
    void connect(const Key& key);
    void connected(const Key& key, Result<Fd> socket);
    void heard(const Key& key, const wire::Frame& frame);
    Status begin(const Key& key, Link& link);
    void lost(const Key& key, const std::string& why);
    static FilesUse use_of(Job& job);
    void measure(const JobId& id);
    void tell_soon(const JobId& id, Job& job, Nanos pause);
    void waits(const Key& key, const std::string& why);
    Link* find(const Key& key);
    void leave(const JobId& id, Job& job) const;
    Result<Fd> reach_server(const Key& key);
    Status start_server(const Job& job, const std::string& path) const;
    std::string path_of(const JobId& id) const { return directory_ + "/" + std::to_string(id.seq); }

    Loop& loop_;
    Log& log_;
    const StartFiles start_;
    BulkIdentity own_;
    std::string directory_;
    Used used_;
    std::map<JobId, Job> jobs_;
};

}  // namespace souk
