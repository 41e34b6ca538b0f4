// SPDX-License-Identifier: GPL-2.0-or-later
// GuestHost: wiring. What the cells, the transfers and the memory that goes ahead tell each other.
#include <sys/socket.h>

#include <cerrno>

#include "agentd/daemon/file_systems.hpp"
#include "agentd/daemon/files_task.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/job_snapshots.hpp"

namespace souk {
namespace {
constexpr Nanos snapshot_limit = Nanos::from_s(20);  // the job stands meanwhile
}  // namespace

void GuestHost::wire_cells() {
    site_.loop = &loop_;
    site_.log = &log_;
    site_.criu = &criu_;
    site_.make_capsule = [this](const GuestKey& key, const CapsuleOptions& how) {
        const auto shown = shown_.find(key);
        return root_.capsule(how, key.id.home == node_, shown == shown_.end() ? "" : shown->second);
    };
    site_.reach = root_.reach();
    site_.inspectors = &inspectors_;
    site_.leave_rate = &leave_rate_;
    site_.disk_secret = [this](const GuestKey& key) { return secrets_.find(key); };
    site_.image_refused = [this](const GuestKey& key, const std::string& why) {
        image_refused(key, why);
    };
    site_.precopy_dropped = [this](const GuestKey& key) { precopy_->close(key); };
    site_.want_pages = [this](const GuestKey& key, bool restored, uint64_t put,
                              const std::vector<PageRange>& wishes) {
        wire::PagesState state{put, restored, {}};
        for (const PageRange& w : wishes) {
            if (state.wishes.size() == wire::page_wishes_max)
                transfers_->want(key, std::exchange(state, {put, restored, {}}));
            state.wishes.push_back(w);
        }
        transfers_->want(key, state);
    };
    site_.pages_whole = [this](const GuestKey& key) { transfers_->whole(key); };
    site_.pages_refused = [this](const GuestKey& key, const std::string& why) {
        transfers_->refuse(key, why);
    };
    site_.event = [this](const GuestKey& key, const guest::Event& e) { cell_event(key, e); };
    site_.output = [this](const GuestKey& key, uint32_t s, uint64_t o, std::string_view b) {
        return cell_output(key, s, o, b);
    };
    site_.input_taken = [this](const GuestKey& key, uint64_t offset) {
        const wire::StdioInputAck ack{key.id, key.epoch, offset};
        if (key.id.home != node_) return (void)peers_.to_home(key.id.home, ack);
        commits_.then([this, ack] { own_.from_own_guest(ack); });
    };
    site_.cgroup_changed = [this](const Cgroup& capsule, Nanos used, bool added) {
        added ? load_.capsule_came(capsule, used, recovering_) : load_.capsule_went(capsule);
    };
}

// An image is here. One that is kept need not run here.
Status GuestHost::image_came(const GuestKey& key, const Manifest& m, MoveForm form) {
    Cell* c = cell(key);
    if (!c || m.job != key.id) return fail("the image is of job " + m.job.text());
    if (c->job().kept) {
        c->keep(m, [this, key, form, bytes = static_cast<int64_t>(m.bytes())](const Status& kept) {
            if (kept) return guest_ended(key, guest::ImageReceived{bytes, form});
            if (guest_.expects_image(key))
                guest_ended(key, guest::ImageFailed{"keep its image: " + kept.error().message});
        });
        return {};
    }
    TRY(can_take(site_.machine, m.machine));
    TRY(c->seal(m));
    if (form != MoveForm::stop_and_copy && !site_.pages_possible)
        return fail("this node cannot take memory past an image");
    if (form != MoveForm::stop_and_copy) TRY(check_left_out(key, *c));
    c->expect_pages(form);
    guest_ended(key, guest::ImageReceived{static_cast<int64_t>(m.bytes()), form});
    return {};
}

void GuestHost::wire_transfers() {
    Transfers::Handlers transfers;
    transfers.expects = [this](const GuestKey& key, const NodeName& sender) {
        return guest_.takes_image_from(key, sender);
    };
    transfers.place = [this](const GuestKey& key) { return place_of_image(key); };
    transfers.seal = [this](const GuestKey& key, const NodeName& sender, Epoch from) {
        return seal_of_coming(key, sender, from);
    };
    transfers.received = [this](const GuestKey& key, const Manifest& m, MoveForm form) {
        return image_came(key, m, form);
    };
    transfers.pages = [this](const GuestKey& key, const PageRange& range,
                             std::string_view bytes) -> Status {
        Cell* c = cell(key);
        return c ? c->put_pages(range, bytes) : Status{};
    };
    transfers.failed = [this](const GuestKey& key, const std::string& why) {
        if (guest_.expects_image(key)) return guest_ended(key, guest::ImageFailed{why});
        guest_ended(key, guest::PagesLost{why});
    };
    transfers.want = [this](uint64_t number, const wire::PagesState& state) {
        peers_.want_pages(number, state);
    };
    transfers.receive_raw = [this](uint64_t number, std::function<void(ByteView)> on_bytes) {
        peers_.receive_raw(number, std::move(on_bytes));
    };
    transfers.answer = [this](uint64_t number, const wire::ImageResult& r) {
        peers_.answer_image(number, r);
    };
    transfers_ = std::make_unique<Transfers>(loop_, BulkIdentity{node_, config_.address, tls_},
                                             std::move(transfers));
}

void GuestHost::wire_precopy() {
    PrecopyLinks::Handlers h;
    h.round = [this](const GuestKey& key) { precopy_round(key); };
    h.refused = [this](const GuestKey& key, const std::string& why) {
        log_.info("memory is not sent ahead",
                  {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"WHY", why}});
        if (Cell* c = cell(key)) c->drop_precopy();
        guest_ended(key, guest::SentPrecopy{});
    };
    h.broken = [this](const GuestKey& key, const std::string& why) { precopy_broken(key, why); };
    h.begin = [this](const GuestKey& key, const NodeName& sender, uint64_t bytes) -> Status {
        Cell* c = guest_.takes_image_from(key, sender) ? cell(key) : nullptr;
        if (!c) return fail("no memory is expected for " + key.text());
        TRY(check_memory(key, bytes));
        return c->expect_precopy(bytes);
    };
    h.take = [this](const GuestKey& key, const PageRange& range, std::string_view bytes) -> Status {
        Cell* c = cell(key);
        return c ? c->take_precopy(range, bytes) : fail("no capsule waits for it");
    };
    h.lost = [this](const GuestKey& key) {
        if (Cell* c = cell(key)) c->precopy_lost();
    };
    h.receive_raw = [this](uint64_t number, std::function<void(ByteView)> on_bytes) {
        peers_.receive_raw(number, std::move(on_bytes));
    };
    h.state = [this](uint64_t number, const wire::PagesState& state) {
        peers_.want_pages(number, state);
    };
    h.answer = [this](uint64_t number, const wire::ImageResult& r) {
        peers_.answer_image(number, r);
    };
    precopy_ = std::make_unique<PrecopyLinks>(loop_, BulkIdentity{node_, config_.address, tls_},
                                              std::move(h));
}

void GuestHost::wire_files() {
    files_ = std::make_unique<GuestFiles>(
        loop_, log_, peers_, site_.reach.take,
        ContentStoreOptions{config_.state + "/contents",
                            static_cast<uint64_t>(config_.contents_mb) << 20,
                            files_starter(root_)});
    site_.files_made = [this] { return GuestFiles::make(root_.devices()); };
    site_.files_begin = [this](const GuestJob& job, const Capsule& capsule) {
        files_->begin(job, capsule);
    };
    site_.files_end = [this](const GuestKey& key) { files_->end(key); };
    site_.files_expected = [this](const GuestKey& key, const std::string& list, bool opens) {
        files_->expect(key, list, opens);
    };
    site_.files_home = [this](const GuestKey& key,
                              std::function<void(const Result<AtHome>&)> done) {
        return files_->ask_home(key, std::move(done));
    };
    site_.syncer = [this](const Pidfd& init) -> Result<Fd> {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return fail_errno("socketpair", errno);
        Fd ours(pair[0]);
        const Fd theirs(pair[1]);
        TRY(root_.program(root::Program::files, {"sync"}, {theirs.get(), init.get()}, true));
        return ours;
    };
    site_.files_own = [this](const GuestKey& key) { files_->own(key); };
    site_.files_snapshot =
        [this](const GuestJob& job, Epoch to, int root,
               const std::function<void(const Status&)>& done) -> Result<std::shared_ptr<void>> {
        TRY_ASSIGN(
            auto task,
            FilesTask::start(loop_, files_starter(root_),
                             {"take", JobSnapshots::name(job.key.id, to.n), job.spec.launch.cwd},
                             job.spec.launch, root, snapshot_limit,
                             [done](const Result<std::string>& said) {
                                 done(said ? Status{} : tl::unexpected(said.error()));
                             }));
        return std::shared_ptr<FilesTask>(std::move(task));
    };
    site_.has_file_systems = [](const std::string& named) { return has_file_systems(named); };
}

}  // namespace souk
