// SPDX-License-Identifier: GPL-2.0-or-later
// CellImage: where an image lies, what is whole, and what is left of it when it is dropped.
#include "agentd/cell/cell_image.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "agentd/cell/refused_images.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

struct Images {
    Loop loop = open_loop();
    TempDir disk, memory;
    GuestKey key{JobId{"n1", 1}, Epoch{1}};
    CellImage image{loop, {disk.fd.get(), memory.fd.get()}, key};
    CellImage another() { return {loop, {disk.fd.get(), memory.fd.get()}, key}; }

    Manifest needs() const {
        Manifest m;
        m.job = key.id;
        m.epoch = key.epoch;
        return m;
    }
    void fill() {
        OK(image.begin());
        OK(create_file(image.fd(), "core-1.img", "core"));
        OK(create_file(image.fd(), "pages-1.img", std::string(5000, 'p')));
    }
    Manifest manifest() const {
        Manifest m = needs();
        m.files = std::move(*digest_files(image.fd()));
        return m;
    }
};
bool lies_in(const TempDir& dir, const std::string& name) {
    return ::faccessat(dir.fd.get(), name.c_str(), F_OK, 0) == 0;
}

START_TEST(an_image_lies_in_memory_unless_it_is_placed_or_found_on_disk) {
    Images i;
    ck_assert(!i.image.on_disk() && !i.image);
    i.fill();
    ck_assert(lies_in(i.memory, i.key.text() + ".part"));
    i.image.place(true);
    i.fill();
    ck_assert(lies_in(i.disk, i.key.text() + ".part"));
    ck_assert(!i.another().on_disk());  // it is not whole
    ck_assert_uint_eq(*i.image.seal_files(i.needs(), nullptr), 5004);
    ck_assert(i.another().on_disk());
    ck_assert(read_manifest(i.another().open()->get()).has_value());
}
END_TEST

START_TEST(what_lay_there_before_is_no_part_of_an_image_that_is_begun) {
    Images i;
    i.fill();
    ck_assert_uint_eq(i.image.bytes(), 5004);
    OK(i.image.begin());
    ck_assert_uint_eq(i.image.bytes(), 0);
}
END_TEST

START_TEST(an_image_that_is_made_is_open_and_only_a_whole_one_can_be_opened_later) {
    Images i;
    ck_assert(!i.image.open());
    i.fill();
    OK(i.image.open());
    ck_assert(!i.image.open_whole());
    OK(i.image.seal(i.manifest()));
    i.image.close();
    OK(i.image.open_whole());
    OK(verify_image(i.image.open()->get()));
}
END_TEST

START_TEST(one_that_is_dropped_is_gone_from_both_places) {
    Images i;
    i.fill();
    OK(i.image.seal(i.manifest()));
    i.image.place(true);
    i.fill();
    OK(i.image.drop(false));
    for (const TempDir* dir : {&i.disk, &i.memory})
        ck_assert_uint_eq(list_dir(dir->fd.get(), ".")->size(), 0);
    ck_assert(!i.image);
}
END_TEST

START_TEST(a_file_can_be_added_to_a_whole_one_which_stays_whole) {
    const std::string secret(32, 'k');
    for (const bool encrypted : {false, true}) {
        Images i;
        i.image.place(true);
        OK(i.image.begin_encrypted(encrypted ? secret : ""));
        OK(create_file(i.image.fd(), "core-1.img", "core"));
        OK(create_file(i.image.fd(), "zeal.img", "z"));
        ck_assert(!i.image.add(frames_file_name, "frames"));  // it is not whole
        ck_assert(i.image.seal_files(i.needs(), nullptr).has_value());
        const Manifest before = *read_manifest(i.image.open_whole()->get());
        OK(i.image.add(frames_file_name, "frames"));
        const Fd whole = *i.image.open_whole();
        const Manifest after = *verify_image(whole.get());
        ck_assert_uint_eq(after.files.size(), 3);
        ck_assert(std::ranges::is_sorted(after.files, {}, &ImageFile::name));
        const auto key =
            key_of_image(after, encrypted ? secret : "", i.key.id, i.key.epoch);  // signed again
        ck_assert(key.has_value());
        const TempDir plain;
        if (encrypted) {
            OK(decrypt_files(whole.get(), after, *key, plain.fd.get(), ""));
            ck_assert_text(*read_file(plain.fd.get(), frames_file_name), "frames");
            ck_assert_text(*read_file(plain.fd.get(), "core-1.img"), "core");
            ck_assert(read_file(whole.get(), frames_file_name)->find("frames") ==
                      std::string::npos);
            // The daemon that made it has ended, and its key with it: the image stays as it is.
            CellImage later = i.another();
            ck_assert(!later.add(frames_file_name, "others"));
            ck_assert(*verify_image(whole.get()) == after);
        } else {
            ck_assert_text(*read_file(whole.get(), frames_file_name), "frames");
        }
        ck_assert(before.files.size() == 2);
    }
}
END_TEST

START_TEST(one_that_came_is_whole_when_every_file_is_on_the_disk) {
    Images i;
    i.image.place(true);
    i.fill();
    std::optional<bool> kept;
    i.image.keep(i.manifest(), [&](const Status& done) { kept = done.has_value(); });
    ck_assert(!kept.has_value());
    UNTIL(i.loop, kept.has_value());
    ck_assert(*kept);
    OK(verify_image(i.image.open_whole()->get()));
}
END_TEST

START_TEST(one_that_lacks_a_file_is_not_kept_and_one_that_is_dropped_says_nothing) {
    Images i;
    i.image.place(true);
    i.fill();
    Manifest manifest = i.manifest();
    ck_assert_int_eq(::unlinkat(i.image.fd(), "pages-1.img", 0), 0);
    int said = 0;
    i.image.keep(manifest, [&](const Status& done) {
        ++said;
        ck_assert(!done);
    });
    UNTIL(i.loop, said == 1);
    ck_assert(!i.image.open_whole());
    i.fill();
    i.image.keep(i.manifest(), [&](const Status&) { ++said; });
    OK(i.image.drop(false));
    (void)i.loop.run_until([] { return false; }, Nanos::from_ms(50));
    ck_assert_int_eq(said, 1);
}
END_TEST

START_TEST(a_thaw_links_all_files_but_the_one_of_pages_and_the_source_keeps_its_own) {
    Images i;
    i.fill();
    OK(create_file(i.image.fd(), page_file_name, "memory"));
    const Manifest manifest = i.manifest();
    TempDir disk, memory;
    CellImage copy{i.loop, {disk.fd.get(), memory.fd.get()}, {JobId{"n1", 1}, Epoch{2}}};
    OK(copy.begin());
    OK(copy.link_from(i.image.fd(), manifest));
    ck_assert_uint_eq(list_dir(copy.fd(), ".")->size(), 2);
    ck_assert_text(*read_file(copy.fd(), "core-1.img"), "core");
    OK(copy.drop(false));
    ck_assert_uint_eq(list_dir(i.image.fd(), ".")->size(), 3);
}
END_TEST

START_TEST(room_is_refused_with_what_is_needed_and_what_is_free) {
    Images i;
    i.fill();
    OK(i.image.room(1));
    const Status none = i.image.room(uint64_t{1} << 60);
    ck_assert(!none);
    ck_assert(none.error().message.find("in memory for images") != std::string::npos);
    ck_assert(Trouble(none.error()).code == CauseCode::image_has_no_room);
    i.image.place(true);
    ck_assert(i.image.room(uint64_t{1} << 60).error().message.find("on the disk") !=
              std::string::npos);
    ck_assert(i.image.fits_memory(1) && !i.image.fits_memory(uint64_t{1} << 60));
}
END_TEST

START_TEST(a_dump_to_disk_with_a_key_is_plain_in_memory_and_encrypted_on_the_disk) {
    const std::string secret(DiskKey::secret_bytes, 's'), core = "what nobody else may read";
    for (const bool memory_has_room : {true, false}) {
        Images i;
        i.image.place(true);
        OK(i.image.begin_dump(secret, memory_has_room));
        ck_assert(lies_in(i.memory, i.key.text() + ".part") == memory_has_room);
        OK(create_file(i.image.fd(), "core-1.img", core));
        OK(i.image.seal_files(i.needs(), nullptr));
        const auto read = [&] { return *read_file(i.image.open_whole()->get(), "core-1.img"); };
        ck_assert(read().find("nobody") == std::string::npos);
        ck_assert(memory_has_room == lies_in(i.memory, i.key.text() + ".part"));
        i.image.close();
        ck_assert_uint_eq(list_dir(i.memory.fd.get(), ".")->size(), 0);

        const Fd whole = *i.image.open_whole();
        const Manifest manifest = *verify_image(whole.get());
        CellImage copy{i.loop, {i.disk.fd.get(), i.memory.fd.get()}, {i.key.id, Epoch{2}}};
        OK(copy.begin());
        ck_assert(!key_of_image(manifest, secret, i.key.id, {2}));
        OK(copy.link_from(whole.get(), manifest,
                          *key_of_image(manifest, secret, i.key.id, i.key.epoch)));
        ck_assert_text(*read_file(copy.fd(), "core-1.img"), core);
    }
}
END_TEST

START_TEST(what_a_daemon_left_of_a_dump_in_memory_goes_when_the_whole_one_is_found) {
    Images i;
    i.image.place(true);
    OK(i.image.begin_dump(std::string(DiskKey::secret_bytes, 's'), true));
    OK(create_file(i.image.fd(), "core-1.img", "core"));
    OK(i.image.seal_files(i.needs(), nullptr));
    CellImage next = i.another();
    ck_assert(next.on_disk() && lies_in(i.memory, i.key.text() + ".part"));
    next.drop_stage();
    ck_assert(!lies_in(i.memory, i.key.text() + ".part"));
    OK(verify_image(next.open_whole()->get()));
}
END_TEST

START_TEST(a_refused_image_is_kept_when_it_is_dropped_and_the_newest_few_stay) {
    const TempDir refused;
    Images i;
    CellImage image{i.loop, {i.disk.fd.get(), i.memory.fd.get(), refused.fd.get()}, i.key};
    const auto make = [&] {
        image.place(true);
        OK(image.begin());
        OK(create_file(image.fd(), "core-1.img", "core"));
        OK(image.seal_files(i.needs(), nullptr));
    };
    make();
    OK(image.drop(false));
    ck_assert(!lies_in(refused, i.key.text()));
    make();
    image.refuse(true);
    OK(image.drop(false));
    ck_assert(lies_in(refused, i.key.text()) && !lies_in(i.disk, i.key.text()));
    OK(verify_image(open_image(refused.fd.get(), i.key.text())->get()));

    // One that is larger than all of them may be: no byte of this file is on the disk.
    make();
    {
        const auto whole = open_image(i.disk.fd.get(), i.key.text());
        const auto big = open_at(whole->get(), "pages-1.img", O_WRONLY | O_CREAT, 0600);
        ck_assert_int_eq(::ftruncate(big->get(), (off_t{8} << 30) + (2 << 20)), 0);
    }
    image.refuse(true);
    const Status too_big = image.drop(false);
    ck_assert(!too_big && !lies_in(i.disk, i.key.text()));
    ck_assert_text(
        too_big.error().message,
        "keep image " + i.key.text() + ": it has 8194 MB, and all that are kept may have 8192");
    ck_assert(lies_in(refused, i.key.text()));  // the one of before

    const RefusedBounds bounds{3, 1000};
    const auto keep = [&](const std::string& name, size_t bytes) {
        ck_assert_int_eq(::mkdirat(i.disk.fd.get(), name.c_str(), 0700), 0);
        OK(create_file(open_image(i.disk.fd.get(), name)->get(), "f", std::string(bytes, 'x')));
        return keep_refused_image(i.disk.fd.get(), name, refused.fd.get(), bounds);
    };
    const auto names = [&] {
        std::string all;
        const auto kept = *list_dir(refused.fd.get(), ".");
        for (const std::string& name : kept) all += name + " ";
        return all;
    };
    OK(remove_image(refused.fd.get(), i.key.text()));
    for (const char* name : {"a", "b", "c", "d"}) OK(keep(name, 10));
    ck_assert_text(names(), "b c d ");
    OK(keep("e", 985));
    ck_assert_text(names(), "d e ");
    ck_assert_int_eq(keep("f", 1001).error().code, EFBIG);
    ck_assert_text(names(), "d e ");
}
END_TEST

START_TEST(one_that_is_to_be_dropped_later_is_unless_it_was_before) {
    Images i;
    i.fill();
    int asked = 0;
    i.image.later(Nanos::from_ms(1), [&] { ++asked; });
    UNTIL(i.loop, asked == 1);
    i.image.later(Nanos::from_ms(1), [&] { ++asked; });
    OK(i.image.drop(false));
    (void)i.loop.run_until([] { return false; }, Nanos::from_ms(20));
    ck_assert_int_eq(asked, 1);
}
END_TEST

}  // namespace

UNIT_SUITE(cell_image, a_file_can_be_added_to_a_whole_one_which_stays_whole,
           an_image_lies_in_memory_unless_it_is_placed_or_found_on_disk,
           what_lay_there_before_is_no_part_of_an_image_that_is_begun,
           an_image_that_is_made_is_open_and_only_a_whole_one_can_be_opened_later,
           one_that_is_dropped_is_gone_from_both_places,
           one_that_came_is_whole_when_every_file_is_on_the_disk,
           one_that_lacks_a_file_is_not_kept_and_one_that_is_dropped_says_nothing,
           a_thaw_links_all_files_but_the_one_of_pages_and_the_source_keeps_its_own,
           room_is_refused_with_what_is_needed_and_what_is_free,
           a_dump_to_disk_with_a_key_is_plain_in_memory_and_encrypted_on_the_disk,
           what_a_daemon_left_of_a_dump_in_memory_goes_when_the_whole_one_is_found,
           a_refused_image_is_kept_when_it_is_dropped_and_the_newest_few_stay,
           one_that_is_to_be_dropped_later_is_unless_it_was_before);

}  // namespace souk::unit
