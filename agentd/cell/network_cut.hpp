// SPDX-License-Identifier: GPL-2.0-or-later
// NetworkCut: the network interface of a job with a network of its own, and when it is cut off.
// Before such a job is dumped nobody begins a connection with it, and what is begun is accepted:
// CRIU leaves out what is not. What would begin one is kept, and comes when it is opened, or goes
// where the job goes. While it is dumped nothing reaches it (from before CRIU looks at its
// connections), from the moment that it stands still its processes do not reach each other over
// loopback, and once it is dumped nothing of it gets out either: what dies where it was says
// nothing. What is sent to it meanwhile is held, and follows it, or goes into the image of who is
// frozen. Its copy is cut off in the same way until it is told to run; then the address is there,
// and what it has said and was sent meanwhile goes on.
//
// Owned by the Cell; it may outlive the capsule, where the job has left for another node. For a job
// that shares the node's network every step is done at once. What fails: the kernel's network.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cell/job_log.hpp"
#include "checkpoint/reach.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/frame_hold.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {

class NetworkCut {
  public:
    struct Job {
        std::string name;  // no other capsule of this machine has it
        bool own = false;  // else there is nothing to cut
        Ipv4 address;
        // Its gates are there all the time: they must shut at the moment when it is killed
        // (silence).
        bool may_go_back = false;
    };
    // `network` of this node; none: a job with a network of its own is refused.
    NetworkCut(Loop& loop, JobLog log, const std::optional<JobNetwork>& network, Job job,
               const Reach& reach)
        : loop_(loop),
          log_(std::move(log)),
          network_(network),
          job_(std::move(job)),
          reach_(reach) {}

    // Whether this node has a place in its network for the job.
    Status check() const;
    // With the capsule. shut: nothing passes until open().
    Status make(const Capsule& capsule, bool shut);
    // Takes the frames that came for the job while it was dumped (frames_held() of then); it gets
    // them when it is opened. So it is a copy that was frozen: no other node sends them after it.
    void came_with(std::string_view frames);
    // The frames that were sent to it since shut_in(), for its image; none: that is not known.
    std::optional<std::string> frames_held() const;
    // After a restart of the daemon.
    void find(const Capsule& capsule, bool shut);
    // There is something to cut off.
    bool own() const { return port_.has_value(); }

    // It runs still, as `inside`, a process of its namespace, does. `then`, at once or soon: with
    // how many connections that its program has not accepted in all that time. Not if it is opened
    // or dropped before.
    void settle(pid_t inside, std::function<void(size_t unaccepted)> then);
    Status shut_in();      // nothing reaches the job any more; it runs still, and may speak
    Status shut_within();  // its processes do not reach each other
    Status shut_out();     // nothing of it gets out
    // The job is here, or here again.
    void open();
    void announce() const;
    // The job stands where it is and others that it is connected with may stand elsewhere, for
    // hours: its kernel does not give their connections up. A copy's does not either, until it
    // runs.
    void patient(bool on);
    // Its lease: of a job that may go back nothing is heard from then on (Loop::now), nor does it
    // hear anything, whether this daemon runs by then or not. Its home has it elsewhere.
    void until(Nanos end);
    // Mends the connections of these processes, which go on here without the CRIU that held them.
    void mend(const PidsInside& pids, const LookAt& look) const;
    // Its job is gone, or elsewhere if it is cut off. What it has sent by then still arrives.
    void drop();
    // Its job was killed, or goes back to a checkpoint: nothing of it is heard any more. Else the
    // kernel, which takes down a namespace seconds later on a busy machine, would repeat the ends
    // of its connections until then and refuse what comes for its address; and a copy that is back
    // at an earlier moment, or its peers, would take that for the copy's words.
    void silence();
    // The same, but what is sent to it is kept as it was: before it is killed. (Its kernel says
    // that its connections have ended before anybody hears that it is dead.)
    void hush();

  private:
    void stay_armed();
    Status arm(Gate at_first = Gate::open);
    Status open_port(const Capsule& capsule, const PortPlan& plan);
    Status hold_frames_of_copy();
    void release_frames(Nanos heard, Nanos spoke);
    void take_kept();
    void release_kept();
    // How many connections of the job have begun and are not accepted, but for those that are kept.
    Result<size_t> unfinished_left(pid_t inside) const;
    void look_for_unaccepted(pid_t inside, Nanos pause, Nanos until,
                             std::function<void(size_t unaccepted)> then);

    Loop& loop_;
    JobLog log_;
    const std::optional<JobNetwork>& network_;
    Job job_;
    const Reach& reach_;
    std::optional<JobPort> port_;
    bool shut_ = false;
    bool is_copy_ = false, was_frozen_ = false;
    bool patient_ = false;
    bool holds_ = false;  // what is sent to it, while it is cut off
    // Frames that have begun a connection since settle(): with the job before the gate was shut to
    // it, and within the job.
    std::vector<std::string> begun_with_, begun_within_;
    Nanos until_ = Nanos::never();
    Timer rest_, settle_;
};

}  // namespace souk
