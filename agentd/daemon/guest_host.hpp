// SPDX-License-Identifier: GPL-2.0-or-later
// GuestHost: this node as the host of guests, and the shell around the Guest machine. It gives the
// commands of homes to the machine, has cells and GuestMoves do what the machine says, tells the
// machine how that ended, and carries the guests' stdio. It reaches another node's home through
// Peers, and this node's own through OwnHome, after the commit. Owned by the Agent, after all that
// it refers to.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agentd/cell/cell.hpp"
#include "agentd/core/guest.hpp"
#include "agentd/core/leave_pace.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/daemon/as_root.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_files.hpp"
#include "agentd/daemon/guest_moves.hpp"
#include "agentd/daemon/guest_site.hpp"
#include "agentd/daemon/guest_users.hpp"
#include "agentd/daemon/image_keeper.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/node_share.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/ticket_desk.hpp"
#include "agentd/root/helper.hpp"
#include "bpf/shut_in.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"

namespace souk {

// Guests tell the home on this node by this.
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
    const TicketDesk* tickets;  // null: insecure
    Commits& commits;
    Peers& peers;
    LoadMeter& load;
    const ShutIn* shut_in;  // null: only a dump finds who has shut himself in with Landlock
    NodeShare* share;       // null: this machine has no control groups
    OwnHome& own;
    GuestListener& listener;
    const SystemAccounts& accounts;
};

class GuestHost final : public GuestsOfPeers, private EffectListener {
  public:
    explicit GuestHost(const GuestHostParts& parts);
    // Examines the machine and opens the directories of images. An error: no guest can be here.
    Status open();
    // The configuration has changed in what may change while it runs (Agent::reloaded).
    void configured() { site_.configured(); }
    // Takes up again the guests that the daemon before left, and removes what nobody knows.
    Status recover();

    void step(const std::function<void(Guest&, guest::Outputs&)>& step);
    const Guest& machine() const { return guest_; }
    GuestUsers& users() { return users_; }
    // The configuration has others, or the market has said which names are its own.
    void take_resources();
    // The market has these names itself: this node's own of these names are given to nobody.
    void set_of_market(const std::vector<std::string>& names);
    Hardware hardware() const { return site_.hardware(); }
    bool sends_ahead() const { return site_.cell_site().precopy_possible; }
    size_t count() const { return cells_.size(); }
    // The guest's first process; 0: it is not known.
    pid_t pid(const GuestKey& key) const;
    // Figures of a guest since it came here; nothing: they are not counted.
    std::optional<Nanos> cpu_time(const GuestKey& key) const;
    std::optional<LoadSample> load(const GuestKey& key) const;
    std::optional<Nanos> memory_stall(const GuestKey& key) const;
    // Images and memory that are on their way to other nodes.
    std::vector<JobSend> sends() const;
    // Guests that stand, with the memory that each holds.
    std::vector<MemoryWish::Standing> standing() const;
    // Bounds how many bytes a second of disk and link all that leaves for the owner of this node
    // may take together; 0: as many as it can.
    void pace(uint64_t bytes_per_s);
    // How much that is still.
    LeavePace::Left to_leave() const;
    // The bound of the CPUs of all guests is being set (Cell::node_bound).
    void node_bound(bool on);
    // Looks whether jobs can move: at each job when it is new, and then once a minute, so at a few
    // of them each second. `tick` counts the seconds.
    void look(uint64_t tick);

    // Homes.
    void home_up(const NodeName& node) override;
    void home_down(const NodeName& node) override;
    Status from_home(const NodeName& node, const wire::Frame& frame) override;
    void home_drained(const NodeName& node) override;
    void command(const NodeName& from, GuestCommand command);
    void stdio_ack(const wire::StdioAck& ack);
    void stdio_input(const wire::StdioInput& input);
    void stdio_winch(const wire::StdioWinch& winch);
    // Connections that carry an image, memory ahead of one, or files.
    Status from_image(uint64_t connection, const NodeName& node, const wire::Frame& frame) override;
    void image_closed(uint64_t connection) override;

  private:
    static constexpr size_t guests_max = 4096;

    void wire_cells();
    void wire_files();
    void recover(const GuestJob& job);
    Status remove_strays(std::set<std::string> known);
    void remove_old_groups();

    void apply(guest::Output& output);
    void audit(const guest::Audit& word);
    void tick();
    void carry_out(const guest::Do& effect);
    void effect_ended(const GuestKey& key, guest::Event event) override;
    void guest_removed(const GuestKey& key);
    Status refuse_unread(const NodeName& from, std::string_view body, const Error& why);
    void to_home(const NodeName& home, const guest::HomeWord& message);
    void tell_again(const GuestKey& key);
    void cell_event(const GuestKey& key, const guest::Event& event);
    bool cell_output(const GuestKey& key, uint32_t stream, uint64_t offset, std::string_view bytes);

    Loop& loop_;
    Log& log_;
    root::Helper& root_;
    const Config& config_;
    wire::Tls* tls_;
    const TicketDesk* tickets_;
    const NodeName& node_;
    std::vector<std::string> of_market_;
    Commits& commits_;
    Peers& peers_;
    LoadMeter& load_;
    NodeShare* share_;
    OwnHome& own_;
    GuestListener& listener_;
    Guest guest_;
    Timer timer_;
    GuestUsers users_;
    GuestSite site_;
    ImageKeeper images_;
    GuestMoves moves_;
    std::unique_ptr<GuestFiles> files_;
    GuestCells cells_;
    bool recovering_ = false;
};

}  // namespace souk
