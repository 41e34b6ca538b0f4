// SPDX-License-Identifier: GPL-2.0-or-later
// GuestHost: this node as the host of guests. It gives the commands of homes to the Guest machine,
// has cells, transfers and pre-copy do what the machine says, tells the machine how that ended, and
// carries the guests' stdio. Another node's home is reached through Peers; this node's own through
// OwnHome, after the commit. Owned by the Agent, after all that it refers to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agentd/cell/cell.hpp"
#include "agentd/cell/disk_secrets.hpp"
#include "agentd/core/guest.hpp"
#include "agentd/core/leave_pace.hpp"
#include "agentd/core/owner_bans.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/daemon/as_root.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_files.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/node_share.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/precopy.hpp"
#include "agentd/daemon/ticket_desk.hpp"
#include "agentd/daemon/transfer.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"

namespace souk {

// What guests tell the home on this node.
class OwnHome {
  public:
    virtual ~OwnHome() = default;
    virtual void from_own_guest(const GuestEvent& event) = 0;
    virtual void from_own_guest(const Expel& expel) = 0;
    virtual void from_own_guest(const wire::StdioData& data) = 0;
    virtual void from_own_guest(const wire::StdioInputAck& ack) = 0;
};

// The Agent hears from the guests by this.
class GuestListener {
  public:
    virtual ~GuestListener() = default;
    // The machine has taken a step, so other guests may be here than before.
    virtual void guests_stepped() = 0;
    // A guest's home is told that it is in this state.
    virtual void guest_said(const GuestKey& key, GuestState state) = 0;
};

struct GuestHostParts {
    Loop& loop;
    Log& log;
    root::Helper& root;
    const AsRoot& as_root;
    LogTrace& trace;
    const Config& config;
    wire::Tls* tls;             // null: insecure
    const TicketDesk* tickets;  // likewise
    Commits& commits;
    Peers& peers;
    LoadMeter& load;
    NodeShare* share;  // null: this machine has no control groups
    OwnHome& own;
    GuestListener& listener;
    const SystemAccounts& accounts;
};

class GuestHost {
  public:
    explicit GuestHost(const GuestHostParts& parts);
    // Where images lie, CRIU, what this machine can.
    Status open();
    // The configuration has changed in what may change while it runs (Agent::reloaded).
    void configured();
    // The file that user_map names may have changed too. An error: the old one holds.
    Status reload_users(const Config& config);
    // Whom the owner does not take (agentd/core/owner_bans.hpp).
    void bans(std::vector<std::string> bans) { bans_ = std::move(bans); }
    // Of guests here, those that he does not take.
    std::vector<JobId> banned() const;
    // What the daemon before left runs on; what nobody knows is removed.
    Status recover();

    void step(const std::function<void(Guest&, guest::Outputs&)>& step);
    const Guest& machine() const { return guest_; }
    Hardware hardware() const;
    bool sends_ahead() const { return site_.precopy_possible; }
    size_t count() const { return cells_.size(); }
    // Of a guest's first process; 0: it is not known.
    pid_t pid(const GuestKey& key) const;
    // Figures of a guest since it came here; nothing: they are not counted.
    std::optional<Nanos> cpu_time(const GuestKey& key) const;
    std::optional<LoadSample> load(const GuestKey& key) const;
    std::optional<Nanos> memory_stall(const GuestKey& key) const;
    // Images and memory that are on their way to other nodes.
    std::vector<JobSend> sends() const;
    // Who stands, with the memory that he holds.
    std::vector<MemoryWish::Standing> standing() const;
    // What leaves for the owner of this node may take so many bytes a second of disk and link, all
    // of it together; 0: as many as it can. And how much that is still.
    void pace(uint64_t bytes_per_s);
    LeavePace::Left to_leave() const;
    // The bound of the CPUs of all guests is being set (Cell::node_bound).
    void node_bound(bool on);
    // Whether jobs can move: each when it is new, and then once a minute, a few of them at a tick.
    void look(uint64_t tick);

    // Homes.
    void home_up(const NodeName& node);
    void resync(const NodeName& home);
    Status from_home(const NodeName& node, const wire::Frame& frame);
    void command(const NodeName& from, GuestCommand command);
    void stdio_ack(const wire::StdioAck& ack);
    void stdio_input(const wire::StdioInput& input);
    void stdio_winch(const wire::StdioWinch& winch);
    // Connections that carry an image, or memory ahead of one.
    Status from_image(uint64_t number, const NodeName& node, const wire::Frame& frame);
    void image_closed(uint64_t number);

  private:
    static constexpr size_t guests_max = 4096;

    void audit(const guest::Audit& word);
    // users.cpp
    Result<RunsAs> runs_as(const NodeName& from, const GuestCommand& command,
                           const Warrant& warrant) const;
    OwnerBans::Job for_bans(const JobId& id, const JobSpec& spec) const;
    bool take_user(const NodeName& from, GuestCommand& command, const Warrant& warrant);

    // guest_host_start.cpp
    Status open_directories();
    Status open_criu();
    void examine_node();
    void recover(const GuestJob& job);
    Status refuse_unread(const NodeName& from, std::string_view body, const Error& why);
    Status remove_strays(std::set<std::string> known);
    void remove_old_groups();

    // guest_host_wiring.cpp
    void wire_cells();
    void wire_transfers();
    void wire_precopy();
    void wire_files();
    Status image_came(const GuestKey& key, const Manifest& m, MoveForm form);

    void apply(guest::Output& output);
    void tick();
    void to_home(const NodeName& home, const guest::HomeWord& message);
    void tell_again(const GuestKey& key);
    void carry_out(const guest::Do& effect);
    // On the disk, beside the daemon's reserve and what the job's user has there.
    Status image_has_room(const GuestKey& key) const;
    // How many bytes of images that user may still have there, which is where `images` lies.
    Result<uint64_t> image_bytes_left(uint32_t uid, int images) const;
    Result<Transfers::Cargo> cargo(const Cell& cell, const guest::Do& effect);
    void note_key(const NodeName& from, const GuestCommand& command);
    void forget_key(const GuestKey& key);
    ImageSeal seal(const GuestKey& of, Epoch to) const;
    ImageSeal seal_of_coming(const GuestKey& to, const NodeName& sender, Epoch from) const;
    Result<Transfers::Place> place_of_image(const GuestKey& key);
    uint64_t memory_bytes_max(const GuestKey& key) const;
    Status check_memory(const GuestKey& key, uint64_t bytes) const;
    Status check_left_out(const GuestKey& key, const Cell& c) const;
    void send_precopy(Cell& cell, const guest::Do& effect);
    void precopy_round(const GuestKey& key);
    void precopy_broken(const GuestKey& key, const std::string& why);
    void send_checkpoint(const guest::Do& effect, const Cell& cell);
    void image_sent(const GuestKey& key, const Result<Manifest>& sent);
    void image_refused(const GuestKey& key, const std::string& why);
    void cell_event(const GuestKey& key, const guest::Event& event);
    void guest_ended(const GuestKey& key, guest::Event event);
    void guest_removed(const GuestKey& key);
    bool cell_output(const GuestKey& key, uint32_t stream, uint64_t offset, std::string_view bytes);
    Cell* cell(const GuestKey& key);

    Loop& loop_;
    Log& log_;
    root::Helper& root_;
    const AsRoot& as_root_;
    const Config& config_;
    wire::Tls* tls_;
    const TicketDesk* tickets_;
    const NodeName& node_;
    Commits& commits_;
    Peers& peers_;
    LoadMeter& load_;
    NodeShare* share_;
    OwnHome& own_;
    GuestListener& listener_;
    const SystemAccounts& accounts_;
    std::optional<UserMap> users_;  // nothing: without certificates all users are the same
    std::vector<std::string> bans_;
    Guest guest_;
    Timer timer_;
    CriuTool criu_;
    inspect::Inspectors inspectors_{[this](Fd socket) {
                                        return root_.program(root::Program::inspect, {},
                                                             {socket.get()}, false);
                                    },
                                    root_.end()};
    CpuAwake awake_{loop_, root_.devices()};
    RateLimit leave_rate_;
    CellSite site_;
    // What homes have said of transfers: of an image that is to come, for the (job, epoch) that it
    // is for; of one that is to be sent, for the one that it is of. In memory alone.
    struct Going {
        Epoch to;
        std::string key;
    };
    std::map<GuestKey, std::string> coming_;
    std::map<GuestKey, Going> going_;
    std::map<GuestKey, std::string> shown_;  // the ticket, which souk-root reads too
    DiskSecrets secrets_;
    std::unique_ptr<Transfers> transfers_;
    std::unique_ptr<PrecopyLinks> precopy_;
    std::unique_ptr<GuestFiles> files_;
    std::map<GuestKey, std::unique_ptr<Cell>> cells_;
    bool recovering_ = false;
};

}  // namespace souk
