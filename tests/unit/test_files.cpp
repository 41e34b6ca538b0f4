// SPDX-License-Identifier: GPL-2.0-or-later
// Files that come along, without a kernel's FUSE: the requests are made here, by the byte.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "agentd/files/client.hpp"
#include "agentd/files/server.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

using unit::TempDir;

struct Said {
    int error = 0;
    Bytes body;
    template <class T>
    T as() const {
        T value{};
        ck_assert(body.size() >= sizeof value);
        std::memcpy(&value, body.data(), sizeof value);
        return value;
    }
};

void add(Bytes& bytes, std::string_view text) {
    bytes.insert(bytes.end(), text.begin(), text.end());
    bytes.push_back(0);
}
void add(Bytes& bytes, const char* text) { add(bytes, std::string_view(text)); }
template <class T>
void add(Bytes& bytes, const T& part) {
    put(bytes, part);
}

template <class... Parts>
Bytes request(uint32_t opcode, uint64_t node, const Parts&... parts) {
    Bytes bytes(sizeof(fuse_in_header));
    (add(bytes, parts), ...);
    fuse_in_header head{};
    head.len = static_cast<uint32_t>(bytes.size());
    head.opcode = opcode;
    head.unique = 7;
    head.nodeid = node;
    std::memcpy(bytes.data(), &head, sizeof head);
    return bytes;
}

struct Home {
    TempDir dir;
    Export tree;
    Session session;
    explicit Home(size_t fds_max = 64, const std::vector<std::string>& sealed = {})
        : tree(make_tree(dir, sealed)), session(tree, {.fds_max = fds_max, .open_max = fds_max}) {}
    static Export make_tree(const TempDir& dir, const std::vector<std::string>& sealed) {
        std::vector<std::string> paths;
        for (const std::string& name : sealed) {
            ck_assert(::mkdir((dir.path + "/" + name).c_str(), 0755) == 0);
            paths.push_back(dir.path + "/" + name);
        }
        auto tree = open_export(dir.path, paths);
        ck_assert(tree.has_value());
        return std::move(*tree);
    }
    std::string at(const std::string& name) const { return dir.path + "/" + name; }
    Said say(const Bytes& bytes) {
        Bytes out;
        session.handle(bytes, out);
        fuse_out_header head{};
        ck_assert(out.size() >= sizeof head);
        std::memcpy(&head, out.data(), sizeof head);
        ck_assert(head.len == out.size());
        return {-head.error, Bytes(out.begin() + sizeof head, out.end())};
    }
    Said look(const char* name, uint64_t below = FUSE_ROOT_ID) {
        return say(request(FUSE_LOOKUP, below, name));
    }
    uint64_t node(const char* name, uint64_t below = FUSE_ROOT_ID) {
        const Said said = look(name, below);
        ck_assert(said.error == 0);
        return said.as<fuse_entry_out>().nodeid;
    }
    // Opens a file. Returns its handle; below 0, an errno.
    int64_t open(uint64_t id, uint32_t flags) {
        const Said said = say(request(FUSE_OPEN, id, fuse_open_in{flags, 0}));
        return said.error != 0 ? -said.error : static_cast<int64_t>(said.as<fuse_open_out>().fh);
    }
    std::string read(int64_t handle, uint32_t size = 100) {
        fuse_read_in in{};
        in.fh = static_cast<uint64_t>(handle);
        in.size = size;
        const Said said = say(request(FUSE_READ, FUSE_ROOT_ID, in));
        ck_assert(said.error == 0);
        return std::string(text_of(said.body));
    }
    void file(const std::string& name, std::string_view text) const { (void)dir.write(name, text); }
};

START_TEST(a_message_that_comes_in_pieces_is_taken_whole) {
    Bytes stream;
    put(stream, Head{3, Kind::request, 9, 4});
    stream.insert(stream.end(), {'a', 'b', 'c'});
    put(stream, Head{0, Kind::attach, 5, 0});
    Talk talk;
    std::vector<Head> heads;
    std::string body;
    for (size_t at = 0; at < stream.size(); ++at) {
        *talk.room() = stream[at];
        talk.took(1);
        const auto message = talk.next();
        ck_assert(message.has_value());
        if (!*message) continue;
        heads.push_back((*message)->head);
        body += text_of((*message)->body);
    }
    ck_assert(heads.size() == 2 && body == "abc");
    ck_assert(heads[0].seq == 9 && heads[0].acked == 4 && heads[1].seq == 5);
}
END_TEST

START_TEST(requests_are_counted_wherever_the_stream_is_cut) {
    Bytes stream;
    for (const uint32_t bytes : {0U, 3U, 100U}) {
        put(stream, Head{bytes, Kind::request, 1, 0});
        stream.resize(stream.size() + bytes, 7);
        put(stream, Head{0, Kind::attach, 5, 0});
    }
    for (size_t piece = 1; piece <= stream.size(); ++piece) {
        RequestCount count;
        uint64_t requests = 0;
        for (size_t at = 0; at < stream.size(); at += piece)
            requests +=
                count.feed(ByteView(stream).subspan(at, std::min(piece, stream.size() - at)));
        ck_assert_uint_eq(requests, 3);
    }
}
END_TEST

START_TEST(what_the_client_answered_itself_is_counted_as_it_says) {
    Bytes stream;
    for (const auto& [kind, seq] : {std::pair(Kind::known, uint64_t{7}),
                                    {Kind::request, 1},
                                    {Kind::known, 9},
                                    {Kind::known, 8}})
        put(stream, Head{0, kind, seq, 0});
    RequestCount count;
    ck_assert_uint_eq(count.feed(stream), 1);
    ck_assert_uint_eq(count.known(), 9);
}
END_TEST

START_TEST(a_message_longer_than_its_kind_may_be_is_refused_at_its_head) {
    const Head wrong[] = {{request_bytes_max + 1, Kind::request, 1, 0},
                          {1, Kind::attach, 1, 0},
                          {sizeof(Hello) - 1, Kind::hello, 1, 0},
                          {0, Kind{99}, 1, 0}};
    for (const Head& head : wrong) {
        Talk talk;
        std::memcpy(talk.room(), &head, sizeof head);
        talk.took(sizeof head);
        ck_assert(!talk.next().has_value());
    }
}
END_TEST

START_TEST(a_file_is_made_written_read_and_is_there_at_home) {
    Home home;
    const Said made =
        home.say(request(FUSE_CREATE, FUSE_ROOT_ID, fuse_create_in{O_RDWR, 0640, 0, 0}, "new"));
    ck_assert(made.error == 0);
    fuse_open_out opened{};
    std::memcpy(&opened, made.body.data() + sizeof(fuse_entry_out), sizeof opened);
    fuse_write_in in{};
    in.fh = opened.fh;
    in.size = 5;
    Bytes bytes = request(FUSE_WRITE, FUSE_ROOT_ID, in, "hello");
    const Said wrote = home.say(bytes);
    ck_assert(wrote.error == 0 && wrote.as<fuse_write_out>().size == 5);
    ck_assert(home.read(static_cast<int64_t>(opened.fh)) == "hello");
    ck_assert(*read_file(AT_FDCWD, home.at("new")) == "hello");
    struct stat st {};
    ck_assert(::stat(home.at("new").c_str(), &st) == 0 && (st.st_mode & 07777) == 0640);
    ck_assert(made.as<fuse_entry_out>().attr.ino == st.st_ino);
}
END_TEST

START_TEST(a_name_that_leads_out_of_its_directory_is_refused) {
    Home home;
    for (const char* name : {"..", ".", "a/b", "/etc", ""})
        ck_assert_msg(home.look(name).error == EINVAL, "%s", name);
    const std::string long_name(256, 'a');
    ck_assert(home.look(long_name.c_str()).error == ENAMETOOLONG);
    Bytes unended = request(FUSE_LOOKUP, FUSE_ROOT_ID, "abc");
    unended.back() = 'd';
    ck_assert(home.say(unended).error == EINVAL);
    ck_assert(home.say(request(FUSE_MKDIR, FUSE_ROOT_ID, fuse_mkdir_in{0755, 0}, "..")).error ==
              EINVAL);
    ck_assert(home.say(request(FUSE_UNLINK, FUSE_ROOT_ID, "../x")).error == EINVAL);
    home.file("x", "");
    ck_assert(
        home.say(request(FUSE_RENAME, FUSE_ROOT_ID, fuse_rename_in{FUSE_ROOT_ID}, "x", "../y"))
            .error == EINVAL);
}
END_TEST

START_TEST(a_link_is_a_link_and_nothing_behind_it_is_opened) {
    Home home;
    ck_assert(::symlink("/etc/passwd", home.at("out").c_str()) == 0);
    ck_assert(::symlink("/etc", home.at("outside").c_str()) == 0);
    const uint64_t out = home.node("out");
    ck_assert(S_ISLNK(home.look("out").as<fuse_entry_out>().attr.mode));
    ck_assert(home.open(out, O_RDONLY) == -ELOOP);
    ck_assert(home.look("passwd", home.node("outside")).error == ENOTDIR);
    const Said target = home.say(request(FUSE_READLINK, out));
    ck_assert(text_of(target.body) == "/etc/passwd");
    // nor by creating it
    const Said made =
        home.say(request(FUSE_CREATE, FUSE_ROOT_ID, fuse_create_in{O_RDWR, 0600, 0, 0}, "out"));
    ck_assert(made.error == ELOOP);
    fuse_setattr_in mode{};
    mode.valid = FATTR_MODE;
    mode.mode = 0777;
    ck_assert(home.say(request(FUSE_SETATTR, out, mode)).error == EOPNOTSUPP);
}
END_TEST

START_TEST(no_device_is_made_and_no_fifo_opened_at_home) {
    Home home;
    ck_assert(home.say(request(FUSE_MKNOD, FUSE_ROOT_ID, fuse_mknod_in{S_IFCHR | 0666, 0x103, 0, 0},
                               "null"))
                  .error == EPERM);
    ck_assert(
        home.say(request(FUSE_MKNOD, FUSE_ROOT_ID, fuse_mknod_in{S_IFIFO | 0666, 0, 0, 0}, "fifo"))
            .error == 0);
    ck_assert(home.open(home.node("fifo"), O_RDONLY) == -EACCES);
    ck_assert(
        home.say(request(FUSE_CREATE, FUSE_ROOT_ID, fuse_create_in{O_RDWR, 0600, 0, 0}, "fifo"))
            .error == EEXIST);
}
END_TEST

START_TEST(a_sealed_directory_and_those_of_the_kernel_are_empty) {
    Home home(64, {"hidden"});
    home.file("hidden/key", "secret");
    const uint64_t hidden = home.node("hidden");
    ck_assert(home.look("key", hidden).as<fuse_entry_out>().nodeid == 0);
    ck_assert(home.say(request(FUSE_MKDIR, hidden, fuse_mkdir_in{0755, 0}, "new")).error == EROFS);
    ck_assert(home.say(request(FUSE_UNLINK, hidden, "key")).error == EROFS);
    const Said opened = home.say(request(FUSE_OPENDIR, hidden, fuse_open_in{0, 0}));
    fuse_read_in in{};
    in.fh = opened.as<fuse_open_out>().fh;
    in.size = 4096;
    const Said list = home.say(request(FUSE_READDIR, hidden, in));
    ck_assert(list.error == 0 && text_of(list.body).find("key") == std::string_view::npos);

    auto root = open_export("/", {});
    ck_assert(root.has_value());
    Session whole(*root, {});
    Bytes out;
    whole.handle(request(FUSE_LOOKUP, FUSE_ROOT_ID, "proc"), out);
    fuse_entry_out proc{};
    std::memcpy(&proc, out.data() + sizeof(fuse_out_header), sizeof proc);
    ck_assert(proc.nodeid != 0);
    out.clear();
    whole.handle(request(FUSE_LOOKUP, proc.nodeid, "self"), out);
    fuse_entry_out self{};
    if (out.size() >= sizeof(fuse_out_header) + sizeof self)
        std::memcpy(&self, out.data() + sizeof(fuse_out_header), sizeof self);
    ck_assert(self.nodeid == 0);
}
END_TEST

START_TEST(more_files_are_known_than_there_are_descriptors) {
    Home home(8);
    std::vector<uint64_t> known;
    ck_assert(::mkdir(home.at("d").c_str(), 0755) == 0);
    const uint64_t below = home.node("d");
    for (int i = 0; i < 40; ++i) {
        home.file("d/" + std::to_string(i), std::to_string(i));
        known.push_back(home.node(std::to_string(i).c_str(), below));
    }
    ck_assert(home.session.nodes().open_count() <= 8);
    for (size_t i = 0; i < known.size(); ++i) {
        const int64_t handle = home.open(known[i], O_RDONLY);
        ck_assert(handle > 0 && home.read(handle) == std::to_string(i));
        fuse_release_in done{};
        done.fh = static_cast<uint64_t>(handle);
        ck_assert(home.say(request(FUSE_RELEASE, known[i], done)).error == 0);
    }
    // A file that has taken the place of another one, whose descriptor was closed, is not taken for
    // that one.
    ck_assert(::rename(home.at("d/3").c_str(), home.at("d/old").c_str()) == 0);
    home.file("d/3", "another");
    ck_assert(home.open(known[3], O_RDONLY) == -ESTALE);
    ck_assert(home.session.open_files() == 0);
}
END_TEST

START_TEST(a_file_whose_name_the_job_removes_stays_its_file) {
    Home home(4);
    home.file("gone", "still here");
    const uint64_t gone = home.node("gone");
    ck_assert(home.say(request(FUSE_UNLINK, FUSE_ROOT_ID, "gone")).error == 0);
    for (int i = 0; i < 20; ++i) {
        home.file(std::to_string(i), "");
        home.node(std::to_string(i).c_str());
    }
    const int64_t handle = home.open(gone, O_RDONLY);
    ck_assert(handle > 0 && home.read(handle) == "still here");
}
END_TEST

START_TEST(a_file_with_the_inode_number_of_one_that_has_gone_is_another) {
    Home home(4);
    home.file("old", "old");
    const uint64_t old = home.node("old");
    struct stat was {
    }, is{};
    ck_assert(::stat(home.at("old").c_str(), &was) == 0);
    for (int i = 0; i < 8; ++i) {  // its descriptor is closed
        home.file("f" + std::to_string(i), "");
        home.node(("f" + std::to_string(i)).c_str());
    }
    ck_assert(::unlink(home.at("old").c_str()) == 0);
    std::string name;
    for (int i = 0; i < 100 && is.st_ino != was.st_ino; ++i) {
        name = "new" + std::to_string(i);
        home.file(name, "new");
        ck_assert(::stat(home.at(name).c_str(), &is) == 0);
    }
    if (is.st_ino != was.st_ino) return;  // this file system does not use a number twice
    const uint64_t fresh = home.node(name.c_str());
    ck_assert(fresh != old && home.node(name.c_str()) == fresh);
    const int64_t handle = home.open(fresh, O_RDONLY);
    ck_assert(handle > 0 && home.read(handle) == "new");
    ck_assert(home.open(old, O_RDONLY) == -ESTALE);
    const Bytes forget = request(FUSE_FORGET, old, fuse_forget_in{1});
    Bytes none;
    home.session.handle(forget, none);
    ck_assert(none.empty() && home.node(name.c_str()) == fresh);
}
END_TEST

START_TEST(an_open_says_that_the_file_is_not_as_it_was_told) {
    Home home;
    home.file("f", "long text");
    const uint64_t id = home.node("f");
    ck_assert(home.open(id, O_RDONLY) > 0 && !home.session.file_has_changed());
    home.file("f", "short");
    ck_assert(home.open(id, O_RDONLY) > 0 && home.session.file_has_changed());
    ck_assert(home.open(id, O_RDWR) > 0 && home.session.file_has_changed());  // not told since
    // A session that empties the file knows its length, so it is not told.
    ck_assert(home.open(id, O_RDWR | O_TRUNC) > 0 && !home.session.file_has_changed());
    const auto said = home.say(request(FUSE_GETATTR, id, fuse_getattr_in{}));
    ck_assert(said.as<fuse_attr_out>().attr.size == 0 && !home.session.file_has_changed());
    ck_assert(home.open(id, O_RDONLY) > 0 && !home.session.file_has_changed());
}
END_TEST

START_TEST(a_renamed_file_is_found_by_its_new_name) {
    Home home(4);
    home.file("old", "text");
    const uint64_t id = home.node("old");
    ck_assert(
        home.say(request(FUSE_RENAME, FUSE_ROOT_ID, fuse_rename_in{FUSE_ROOT_ID}, "old", "new"))
            .error == 0);
    for (int i = 0; i < 20; ++i) {
        home.file(std::to_string(i), "");
        home.node(std::to_string(i).c_str());
    }
    ck_assert(home.open(id, O_RDONLY) > 0);
}
END_TEST

START_TEST(what_is_forgotten_is_forgotten_with_its_directory) {
    Home home;
    ck_assert(::mkdir(home.at("d").c_str(), 0755) == 0);
    home.file("d/f", "");
    const uint64_t below = home.node("d"), file = home.node("f", below);
    ck_assert(home.session.nodes().count() == 3);
    Bytes out;
    home.session.handle(request(FUSE_FORGET, below, fuse_forget_in{1}), out);
    ck_assert(out.empty() && home.session.nodes().count() == 3);  // its file may need it
    home.session.handle(request(FUSE_FORGET, file, fuse_forget_in{1}), out);
    ck_assert(out.empty() && home.session.nodes().count() == 1);
    ck_assert(home.open(file, O_RDONLY) == -ESTALE);
}
END_TEST

START_TEST(a_request_cut_short_anywhere_is_refused) {
    Home home;
    home.file("f", "text");
    fuse_setattr_in mode{};
    mode.valid = FATTR_MODE;
    const Bytes whole[] = {
        request(FUSE_LOOKUP, FUSE_ROOT_ID, "f"),
        request(FUSE_MKDIR, FUSE_ROOT_ID, fuse_mkdir_in{0755, 0}, "d"),
        request(FUSE_SYMLINK, FUSE_ROOT_ID, "l", "target"),
        request(FUSE_RENAME2, FUSE_ROOT_ID, fuse_rename2_in{FUSE_ROOT_ID, 0, 0}, "f", "g"),
        request(FUSE_CREATE, FUSE_ROOT_ID, fuse_create_in{}, "c"),
        request(FUSE_SETATTR, FUSE_ROOT_ID, mode),
        request(FUSE_READ, FUSE_ROOT_ID, fuse_read_in{}),
        request(FUSE_GETXATTR, FUSE_ROOT_ID, fuse_getxattr_in{10, 0}, "user.x"),
    };
    for (const Bytes& bytes : whole) {
        for (size_t size = 0; size < bytes.size(); ++size) {
            Bytes part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
            if (size >= sizeof(fuse_in_header)) {
                const auto length = static_cast<uint32_t>(size);
                std::memcpy(part.data(), &length, sizeof length);
            }
            ck_assert(home.say(part).error != 0);
        }
    }
    ck_assert(::access(home.at("d").c_str(), F_OK) != 0);
    Bytes padded = whole[0];
    padded.push_back(0);  // longer than it says
    ck_assert(home.say(padded).error == EINVAL);
}
END_TEST

START_TEST(a_number_that_nobody_gave_is_no_file) {
    Home home;
    fuse_read_in in{};
    in.fh = 77;
    in.size = 10;
    ck_assert(home.say(request(FUSE_READ, FUSE_ROOT_ID, in)).error == ESTALE);
    ck_assert(home.open(12345, O_RDONLY) == -ESTALE);
    ck_assert(home.say(request(FUSE_GETATTR, 2, fuse_getattr_in{})).error == ESTALE);
    in.size = data_bytes_max + 1;
    ck_assert(home.say(request(FUSE_READ, FUSE_ROOT_ID, in)).error == EINVAL);
}
END_TEST

START_TEST(a_descriptor_of_the_server_before_is_refused_by_the_next_one) {
    Home before, after;
    before.file("a", "old");
    after.file("b", "new");
    const int64_t old = before.open(before.node("a"), O_RDWR);
    ck_assert(old > 0 && after.open(after.node("b"), O_RDWR) > 0);
    fuse_read_in in{};
    in.fh = static_cast<uint64_t>(old);
    in.size = 10;
    ck_assert(after.say(request(FUSE_READ, FUSE_ROOT_ID, in)).error == ESTALE);
    fuse_release_in gone{};
    gone.fh = in.fh;
    ck_assert(after.say(request(FUSE_RELEASE, FUSE_ROOT_ID, gone)).error == ESTALE);
    ck_assert_text(before.read(old), "old");
}
END_TEST

START_TEST(a_request_that_comes_twice_is_done_once) {
    TempDir dir;
    auto tree = open_export(dir.path, {});
    Answers answers(*tree, {});
    const Bytes make = request(FUSE_MKDIR, FUSE_ROOT_ID, fuse_mkdir_in{0755, 0}, "d");
    Bytes first, second, third;
    ck_assert(answers.answer({0, Kind::request, 1, 1}, make, first));
    ck_assert(answers.answer({0, Kind::request, 1, 1}, make, second));
    ck_assert(first == second);
    // The next request says that the client has the answer, so the old number is refused from then
    // on.
    ck_assert(answers.answer({0, Kind::request, 2, 2}, make, third));
    ck_assert(third != first);
    ck_assert(!answers.answer({0, Kind::request, 1, 2}, make, third));
}
END_TEST

// The request that came first was not sent for a while: its client had another place to read from.
// Nothing is forgotten without it, so it is answered however many answers are kept.
START_TEST(answers_are_kept_no_more_than_a_client_may_ask_for_again) {
    TempDir dir;
    auto tree = open_export(dir.path, {});
    Answers answers(*tree, {});
    const Bytes make = request(FUSE_MKDIR, FUSE_ROOT_ID, fuse_mkdir_in{0755, 0}, "d");
    Bytes out;
    const auto asks = [&](uint64_t seq, uint64_t acked) {
        return answers.answer({0, Kind::request, seq, acked}, make, out);
    };
    uint64_t seq = 2;
    while (seq < 1000 && asks(seq, 1)) ++seq;
    ck_assert(seq > slots && seq < 1000);
    ck_assert(asks(1, 1) && !asks(seq, 1));
    ck_assert(asks(seq, seq));
}
END_TEST

START_TEST(a_stream_that_is_never_empty_holds_no_more_than_is_to_be_sent) {
    constexpr size_t message = 1 << 20, left = 4 << 20;
    Outgoing out;
    uint8_t next_put = 0, next_sent = 0;
    for (int n = 0; n < 200; ++n) {
        Bytes& messages = out.messages();
        messages.resize(messages.size() + message, next_put++);
        if (out.size() <= left) continue;
        ck_assert(out.next()[0] == next_sent && out.next()[message - 1] == next_sent++);
        out.sent(message);
    }
    ck_assert(out.size() == left && out.next()[0] == next_sent && out.capacity() <= 4 * left);
    ck_assert(!out.holds_much());
    out.sent(left);
    ck_assert(out.empty() && out.holds_much());
    out.give_back();
    ck_assert(!out.holds_much());
}
END_TEST

START_TEST(a_kernel_is_offered_what_it_has_and_no_more) {
    fuse_init_in in{};
    in.major = 7;
    in.minor = 36;
    in.flags = FUSE_ASYNC_READ | FUSE_MAX_PAGES | FUSE_POSIX_LOCKS | FUSE_WRITEBACK_CACHE;
    for (const bool locks : {false, true}) {
        const auto answer = answer_init(request(FUSE_INIT, 0, in), locks);
        ck_assert(answer.has_value());
        fuse_init_out out{};
        std::memcpy(&out, answer->data() + sizeof(fuse_out_header), sizeof out);
        ck_assert(out.minor == 36 && out.flags == (FUSE_ASYNC_READ | FUSE_MAX_PAGES |
                                                   (locks ? FUSE_POSIX_LOCKS : 0U)));
    }
    in.minor = 10;
    ck_assert(!answer_init(request(FUSE_INIT, 0, in), true).has_value());
    ck_assert(!answer_init(Bytes(10), true).has_value());
}
END_TEST
}  // namespace

}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files, a_message_that_comes_in_pieces_is_taken_whole,
           requests_are_counted_wherever_the_stream_is_cut,
           what_the_client_answered_itself_is_counted_as_it_says,
           a_message_longer_than_its_kind_may_be_is_refused_at_its_head,
           a_file_is_made_written_read_and_is_there_at_home,
           a_name_that_leads_out_of_its_directory_is_refused,
           a_link_is_a_link_and_nothing_behind_it_is_opened,
           no_device_is_made_and_no_fifo_opened_at_home,
           a_sealed_directory_and_those_of_the_kernel_are_empty,
           more_files_are_known_than_there_are_descriptors,
           a_file_whose_name_the_job_removes_stays_its_file,
           a_file_with_the_inode_number_of_one_that_has_gone_is_another,
           an_open_says_that_the_file_is_not_as_it_was_told,
           a_renamed_file_is_found_by_its_new_name,
           what_is_forgotten_is_forgotten_with_its_directory,
           a_request_cut_short_anywhere_is_refused, a_number_that_nobody_gave_is_no_file,
           a_descriptor_of_the_server_before_is_refused_by_the_next_one,
           a_request_that_comes_twice_is_done_once,
           answers_are_kept_no_more_than_a_client_may_ask_for_again,
           a_stream_that_is_never_empty_holds_no_more_than_is_to_be_sent,
           a_kernel_is_offered_what_it_has_and_no_more);
}  // namespace souk
