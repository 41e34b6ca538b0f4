// SPDX-License-Identifier: GPL-2.0-or-later
// Images with one thing changed: an entry or a field of one file altered, added or taken away. Each
// goes by the way that an image of another node goes: who reads it without rights refuses it, or
// CRIU restores it as its user, and before it runs the product's look at it refuses it, or somebody
// who shares nothing with that look finds in the kernel nothing that a user's job may not have.
// SOUK_IMAGES=N alters N images, SOUK_SEED=N others.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "agentd/inspect/inspector.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/restored.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/rng.hpp"
#include "tests/image_mutator.hpp"
#include "tests/unit/doctored_image.hpp"
#include "tests/unit/inspect_rig.hpp"
#include "tests/unit/job_watcher.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr uint64_t deleted_bytes_max = 64 << 20;
// For a CRIU that an image has led astray, and one that it has not.
constexpr Nanos astray_limit = Nanos::from_s(2), whole_limit = Nanos::from_s(60);

uint64_t number_of(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? whole_number<uint64_t>(text).value_or(otherwise) : otherwise;
}

const std::map<int, uint64_t> limits_max = {{RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0}};
const CriuUser user{doctored_user, doctored_user, {}};

std::string script_in(const std::string& place) {
    return "d = '" + place + R"('
os.chdir(d)
def his(name): os.chown(d + name, 4321, 4321)
a, b = socket.socketpair()
a.send(b'waits')
tcp = socket.socket(); tcp.bind(('127.0.0.1', 0)); tcp.listen(5)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('127.0.0.1', 0))
door = socket.socket(socket.AF_UNIX); door.bind(d + '/s'); door.listen(3); his('/s')
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); link.bind((0, 0))
libc = ctypes.CDLL(None)
notes = libc.inotify_init(); libc.inotify_add_watch(notes, d.encode(), 0x100)
waits = select.epoll(); waits.register(b)
os.mkfifo(d + '/p'); his('/p'); fifo = os.open(d + '/p', os.O_RDWR); os.write(fifo, b'z')
count, space = os.eventfd(1), os.open('/proc/self/ns/net', os.O_RDONLY)
deleted = open(d + '/gone', 'w+'); deleted.write('x'); deleted.flush(); his('/gone')
os.unlink(d + '/gone')
kept = open(d + '/kept', 'w+'); his('/kept')
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
child = os.fork()
if child == 0: time.sleep(600)
print('ready', flush=True)
sys.stdin.readline()
)";
}

// A message with a number in a field at the end of that path of fields.
std::string with_number(const std::string& message, std::vector<uint32_t> path, uint64_t number) {
    auto fields = *test::fields_of(message);
    const uint32_t first = path.front();
    path.erase(path.begin());
    if (path.empty()) {
        std::erase_if(fields, [&](const auto& f) { return f.tag == first << 3; });
        fields.push_back({first << 3, number, {}});
    }
    for (test::WireField& f : fields)
        if (!path.empty() && f.tag == (first << 3 | 2))
            f.bytes = with_number(f.bytes, path, number);
    return test::message_of(fields);
}

// The images of one job, one after another.
class Alterations {
  public:
    explicit Alterations(uint64_t seed) : rng_(seed) {
        ck_assert(inspectors_.begin().has_value());
        ck_assert_int_eq(::chmod(place_.path.c_str(), 0777), 0);
        freeze_as_users(script_in(place_.path), output_, image_);
        const auto names = *list_dir(image_.fd.get(), ".");
        for (const std::string& name : names)
            if (name.ends_with(".img") && !name.starts_with("pages-")) names_.push_back(name);
    }

    // In what all of them ended, by the words of docs/security.md.
    std::map<std::string, int> ends;
    std::vector<std::string> broken;

    // The image as it is: everything comes back, and nobody finds anything.
    void unaltered() {
        const TempDir copy;
        copy_to(copy, "");
        ck_assert_text(refusal(copy.fd.get()), "");
        restore(copy, "unaltered", whole_limit);
        ck_assert_uint_gt(of_another_, 0);  // who looks does find what is there
        ck_assert_msg(ends["restored, and has what it may"] == 1, "%s", last_.c_str());
    }

    void one() {
        // The reader of images of a test ends after two minutes.
        if (++count_ % 200 == 0) ck_assert(inspectors_.begin().has_value());
        const TempDir copy;
        const std::string name = names_[rng_.below(names_.size())];
        copy_to(copy, name);
        std::string bytes = *read_file(image_.fd.get(), name, 64 << 20);
        std::string altered = bytes, put_as = name;
        if (rng_.below(16) == 0) {  // it stands for another, or is not there
            put_as = names_[rng_.below(names_.size())];
            (void)::unlinkat(copy.fd.get(), put_as.c_str(), 0);
        } else {
            test::ImageMutator mutator([this](uint64_t n) { return rng_.below(n); });
            for (uint64_t n = 1 + rng_.below(3); n > 0 || altered == bytes; n -= n > 0 ? 1 : 0)
                altered = mutator.mutate(altered);
        }
        if (rng_.below(64) != 0 || put_as == name) copy.write(put_as, altered);
        if (!refusal(copy.fd.get()).empty())
            ++ends["refused before CRIU reads it"];
        else
            restore(copy, put_as, astray_limit);
    }

    struct Number {
        std::vector<uint32_t> path;  // of fields, the last one a number's
        uint64_t value;
    };
    // Why nobody restores the image with these in the first file whose name begins so; or what a
    // job would have then.
    std::string with(const std::string& begin, const std::vector<Number>& numbers) {
        const auto name = std::ranges::find_if(
            names_, [&](const std::string& one) { return one.starts_with(begin); });
        const std::string bytes = *read_file(image_.fd.get(), *name, 64 << 20);
        std::string message = bytes.substr(12);
        for (const Number& n : numbers) message = with_number(message, n.path, n.value);
        const auto length = static_cast<uint32_t>(message.size());
        const TempDir copy;
        copy_to(copy, *name);
        copy.write(*name, bytes.substr(0, 8) +
                              std::string(reinterpret_cast<const char*>(&length), 4) + message);
        std::string why = refusal(copy.fd.get());
        if (!why.empty()) return why;
        broken.clear();
        restore(copy, *name, whole_limit);
        for (const std::string& what : broken) why += what + "; ";
        return why.empty() ? last_ : why;
    }

  private:
    // Puts that directory back as the job left it, whatever a restore has changed there.
    void lay_out() const {
        const auto names = *list_dir(place_.fd.get(), ".");
        for (const std::string& name : names) (void)::unlinkat(place_.fd.get(), name.c_str(), 0);
        place_.write("kept", "");
        ck_assert_int_eq(::mkfifo((place_.path + "/p").c_str(), 0600), 0);
        ck_assert_int_eq(::chmod(place_.path.c_str(), 0777), 0);
        for (const char* name : {"/kept", "/p"})
            ck_assert_int_eq(::chmod((place_.path + name).c_str(), 0644), 0);
        for (const char* name : {"", "/kept", "/p"})
            ck_assert_int_eq(::chown((place_.path + name).c_str(), doctored_user, doctored_user),
                             0);
    }

    // All but that file.
    void copy_to(const TempDir& copy, const std::string& but) const {
        const auto names = *list_dir(image_.fd.get(), ".");
        for (const std::string& name : names)
            if (name != but && is_image_file(name))
                ck_assert_int_eq(
                    ::linkat(image_.fd.get(), name.c_str(), copy.fd.get(), name.c_str(), 0), 0);
    }

    std::string refusal(int image) {
        std::optional<Result<ImageFacts>> facts;
        ck_assert(inspection_.open(inspectors_).has_value());
        inspection_.read(image, [&](Result<ImageFacts> read) { facts = std::move(read); });
        UNTIL(loop_, facts.has_value());
        if (!*facts) return facts->error().message;
        const Status fits = check_credentials(**facts, user, deleted_bytes_max, limits_max);
        return fits ? "" : fits.error().message;
    }

    // The product's look, and then the other one. None of it runs once more.
    Status look(const Capsule& capsule, const std::string& name) {
        Status fit = fit_restored(capsule.pidfd(), {user, {}, limits_max});
        if (!fit) {
            ++ends["restored, and ended before it runs"];
            return fit;
        }
        int looked = 0;
        JobWatcher watcher(capsule.pidfd().pid(), doctored_user);
        for (const std::string& what : watcher.look(looked)) broken.push_back(name + ": " + what);
        if (of_another_ == 0)
            of_another_ = JobWatcher(capsule.pidfd().pid(), doctored_user + 1).look(looked).size();
        ++ends[looked > 0 ? "restored, and has what it may" : "restored, and nothing is there"];
        kill_restored(capsule.pidfd());
        return fail("it was looked at");
    }

    void restore(const TempDir& copy, const std::string& name, Nanos step_limit) {
        lay_out();
        JobOutput output;
        CapsuleRig rig(output);
        ck_assert(rig.client.prepare(false).has_value());
        ck_assert(rig.client.helpers_enter(true).has_value());
        ck_assert(rig.until([&] { return rig.prepared && rig.helpers_ready; }));
        SessionRig criu(rig, copy.fd.get(), user);
        ck_assert_msg(criu.until(CriuEventKind::ready), "%s", criu.why().c_str());
        ck_assert(rig.client.load(copy.fd.get()).has_value());
        ck_assert(rig.until([&] { return rig.loaded; }));
        RestoreOptions options;
        options.keys = stdio_keys(rig.residue);
        bool seen = false;
        options.made = [&] {
            seen = true;
            return look(rig.capsule, name);
        };
        ck_assert(criu.session.restore(options).has_value());
        if (criu.until(CriuEventKind::restore_held, step_limit) &&
            criu.session.answer(true).has_value())
            (void)criu.until(CriuEventKind::restored, step_limit);
        last_ = criu.why();
        if (!seen) ++ends[criu.session ? "CRIU does not end" : "CRIU refuses it"];
        // Its processes go with the capsule, which must not wait for it.
        if (criu.session) (void)criu.session.pidfd().signal(SIGKILL);
    }

    Rng rng_;
    Loop loop_ = open_loop();
    inspect::Inspectors inspectors_{reads_images()};
    inspect::Inspection inspection_{loop_};
    const TempDir place_, image_;
    JobOutput output_;
    std::vector<std::string> names_;
    std::string last_;
    int count_ = 0;
    size_t of_another_ = 0;  // what there is that another user may not have
};

START_TEST(no_altered_image_gives_a_job_what_its_user_may_not_have) {
    UNIT_SKIP_IF(moves_impossible());
    const uint64_t images = number_of("SOUK_IMAGES", 24), seed = number_of("SOUK_SEED", 1);
    Alterations all(seed);
    all.unaltered();
    for (uint64_t i = 0; i < images; ++i) all.one();
    std::string said = std::to_string(images) + " altered images of seed " + std::to_string(seed);
    for (const auto& [end, count] : all.ends) said += "; " + std::to_string(count) + " " + end;
    std::fprintf(stderr, "%s\n", said.c_str());
    for (const std::string& what : all.broken) std::fprintf(stderr, "%s\n", what.c_str());
    ck_assert_uint_eq(all.broken.size(), 0);
}
END_TEST

START_TEST(no_priority_root_or_namespace_comes_out_of_an_image) {
    UNIT_SKIP_IF(moves_impossible());
    Alterations all(1);
    all.unaltered();
    const auto has = [](const std::string& why, const char* words) {
        ck_assert_msg(why.find(words) != std::string::npos, "%s", why.c_str());
    };
    has(all.with("core-", {{{5, 4}, 1}, {{5, 5}, 50}}), "it would have real-time priority 50");
    has(all.with("core-", {{{5, 3}, 39}}), "it would have the nice value -20");
    has(all.with("fs-", {{{2}, 1}}), "its root directory would be none of a job's");
    for (const uint32_t space : {5, 6, 9, 10, 11})
        has(all.with("ids-", {{{space}, 77}}), "in a namespace that is not the capsule's");
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(altered_image, 3600, no_altered_image_gives_a_job_what_its_user_may_not_have,
                no_priority_root_or_namespace_comes_out_of_an_image);

}  // namespace souk::unit
