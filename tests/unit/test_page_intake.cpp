// SPDX-License-Identifier: GPL-2.0-or-later
// PageIntake over a place for pages that the test plays: what is asked of the source, what comes
// out of the store of pre-copy or out of the image, and when all is there.
#include "agentd/cell/page_intake.hpp"

#include <fcntl.h>
#include <poll.h>

#include <set>

#include "checkpoint/sent_pages.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/pagemap_image.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

// The restored job: which pages it lacks.
struct Job {
    std::set<uint64_t> missing;
    std::vector<PageRange> wishes;  // that the next look tells
    std::vector<int> uffds;
    std::string trouble;  // of the next look
    uint64_t put = 0;
    std::function<void()> at_put = [] {};
    bool held = false;
    Pipe touched = std::move(*make_pipe());
};

class Place final : public PagePlace {
  public:
    explicit Place(Job& job) : job_(job) {}
    int fd() const override { return job_.touched.read_end.get(); }
    Result<std::vector<PageRange>> on_readable() override {
        (void)read_some_bytes();
        if (!job_.trouble.empty()) return tl::unexpected(Error{0, job_.trouble});
        return std::exchange(job_.wishes, {});
    }
    std::vector<int> new_uffds() override { return std::exchange(job_.uffds, {}); }
    Status restored() override {
        job_.held = true;
        return {};
    }
    Status put(const PageRange& range, std::string_view bytes) override {
        ck_assert_uint_eq(bytes.size(), range.pages * page_bytes);
        // One that is there already stays as it is.
        for (uint64_t i = 0; i < range.pages; ++i) job_.missing.erase(range.start + i * page_bytes);
        job_.put += bytes.size();
        job_.at_put();
        return {};
    }
    bool whole() const override { return job_.held && job_.missing.empty(); }
    uint64_t bytes_put() const override { return job_.put; }

  private:
    ssize_t read_some_bytes() const {
        struct pollfd p {
            fd(), POLLIN, 0
        };
        char byte;
        return ::poll(&p, 1, 0) > 0 ? ::read(fd(), &byte, 1) : 0;
    }
    Job& job_;
};

constexpr uint64_t base = 0x10000;
PageRange pages_at(uint64_t first, uint64_t count) { return {1, base + first * page_bytes, count}; }
std::string bytes_of_pages(uint64_t first, uint64_t count) {
    std::string all;
    for (uint64_t i = first; i < first + count; ++i)
        all += std::string(page_bytes, static_cast<char>('a' + i % 26));
    return all;
}

struct Destination {
    Loop loop = open_loop();
    TempDir image;
    Job job;
    std::vector<int> kept;
    std::string capsule_refuses;
    struct Want {
        bool any;
        uint64_t put;
        size_t wishes;
    };
    std::vector<Want> wants;
    int lets_go = 0, may_run = 0, whole = 0;
    std::vector<std::string> failures;
    bool ends_then = false;
    PageIntake intake;

    explicit Destination(bool possible = true)
        : intake(loop, possible,
                 {.place = [this](int) -> Result<std::unique_ptr<PagePlace>> {
                      return std::make_unique<Place>(job);
                  },
                  .keep = [this](int uffd) -> Status {
                      if (!capsule_refuses.empty())
                          return tl::unexpected(Error{0, capsule_refuses});
                      kept.push_back(uffd);
                      return {};
                  },
                  .let_go = [this] { ++lets_go; },
                  .want =
                      [this](bool any, uint64_t put, const std::vector<PageRange>& wishes) {
                          wants.push_back({any, put, wishes.size()});
                      },
                  .may_run = [this] { ++may_run; },
                  .whole = [this] { ++whole; },
                  .failed =
                      [this](const Error& why) {
                          failures.push_back(why.message);
                          if (ends_then) intake.end();
                      }}) {}
    // A job that lacks so many pages, and comes in that form.
    void restore(MoveForm form, uint64_t pages) {
        for (uint64_t i = 0; i < pages; ++i) job.missing.insert(base + i * page_bytes);
        intake.expect(form);
        OK(intake.use_precopy(image.fd.get()));
        OK(intake.listen(image.fd.get()));
    }
    void touches(const PageRange& range) {
        job.wishes.push_back(range);
        ck_assert_int_eq(::write(job.touched.write_end.get(), "x", 1), 1);
        const size_t before = wants.size();
        UNTIL(loop, wants.size() > before || job.wishes.empty());
    }
    void put(uint64_t first, uint64_t count) {
        OK(intake.put(pages_at(first, count), bytes_of_pages(first, count)));
    }
    void name_in_image(const std::vector<PageRange>& ranges) {
        OK(create_file(image.fd.get(), precopy_file_name, encode_precopy({ranges, ""})));
    }
};

START_TEST(a_job_of_stop_and_copy_listens_for_nothing) {
    Destination d;
    OK(d.intake.listen(d.image.fd.get()));
    ck_assert(!d.intake.listening() && !d.intake.incomplete());
    OK(d.intake.put(pages_at(0, 1), bytes_of_pages(0, 1)));  // for nobody
    ck_assert_uint_eq(d.job.put, 0);
}
END_TEST

START_TEST(pages_first_is_whole_when_the_last_page_is_there_and_the_capsule_keeps_nothing) {
    Destination d;
    d.restore(MoveForm::pages_first, 3);
    d.job.uffds = {7};
    d.intake.restored();
    ck_assert_uint_eq(d.wants.size(), 1);
    ck_assert(d.wants[0].any && d.wants[0].wishes == 0);
    d.put(0, 2);
    ck_assert(d.whole == 0 && d.intake.incomplete());
    d.put(2, 1);
    ck_assert(d.whole == 1 && !d.intake.incomplete());
    ck_assert(d.may_run == 0 && d.lets_go == 0 && d.kept.empty());
    OK(d.intake.put(pages_at(2, 1), bytes_of_pages(2, 1)));  // once more: nobody waits for it
    d.intake.job_runs();
    ck_assert(!d.intake.listening());
}
END_TEST

START_TEST(post_copy_may_run_at_once_and_its_userfaultfds_are_kept_until_it_is_whole) {
    Destination d;
    d.restore(MoveForm::post_copy, 2);
    d.job.uffds = {7, 8};
    d.intake.restored();
    ck_assert(d.may_run == 1 && d.whole == 0);
    ck_assert_uint_eq(d.kept.size(), 2);
    d.intake.job_runs();
    ck_assert(d.intake.listening());  // it runs without them
    d.put(0, 2);
    ck_assert(d.whole == 1 && d.lets_go == 1);
}
END_TEST

START_TEST(before_criu_holds_the_job_only_what_it_waits_for_is_asked_for) {
    Destination d;
    d.restore(MoveForm::pages_first, 4);
    d.touches(pages_at(1, 1));
    ck_assert_uint_eq(d.wants.size(), 1);
    ck_assert(!d.wants[0].any && d.wants[0].wishes == 1);
    d.put(1, 1);
    ck_assert_uint_eq(d.wants.size(), 1);
    d.intake.restored();
    ck_assert_uint_eq(d.wants.size(), 2);
    ck_assert(d.wants[1].any);
    ck_assert_uint_eq(d.wants[1].put, page_bytes);
}
END_TEST

START_TEST(what_was_put_is_acknowledged_each_256_kb) {
    Destination d;
    d.restore(MoveForm::post_copy, 130);
    d.intake.restored();
    d.wants.clear();
    for (uint64_t i = 0; i < 63; ++i) d.put(i, 1);
    ck_assert_uint_eq(d.wants.size(), 0);
    d.put(63, 1);
    ck_assert_uint_eq(d.wants.size(), 1);
    ck_assert_uint_eq(d.wants[0].put, 64 * page_bytes);
    d.put(64, 65);
    ck_assert_uint_eq(d.wants.size(), 2);
    ck_assert_uint_eq(d.wants[1].put, 129 * page_bytes);
}
END_TEST

START_TEST(what_came_ahead_and_the_image_names_is_put_from_here_and_the_rest_is_asked_for) {
    Destination d;
    OK(d.intake.expect_precopy(8 * page_bytes));
    OK(d.intake.take_precopy(pages_at(0, 3), bytes_of_pages(0, 3)));
    d.name_in_image({pages_at(0, 2)});  // the third was written to since
    d.restore(MoveForm::post_copy, 4);
    d.touches(pages_at(1, 1));
    ck_assert_uint_eq(d.wants.size(), 0);
    ck_assert_uint_eq(d.job.missing.count(base + page_bytes), 0);
    d.intake.restored();
    ck_assert_uint_eq(d.wants.size(), 1);
    ck_assert_uint_eq(d.wants[0].put, 0);  // of what the source has sent
    d.touches(pages_at(3, 1));
    ck_assert_uint_eq(d.wants.back().wishes, 1);
}
END_TEST

START_TEST(all_that_came_ahead_is_put_without_being_touched) {
    Destination d;
    OK(d.intake.expect_precopy(8 * page_bytes));
    OK(d.intake.take_precopy(pages_at(0, 4), bytes_of_pages(0, 4)));
    d.name_in_image({pages_at(0, 4)});
    d.restore(MoveForm::pages_first, 4);
    d.intake.restored();
    UNTIL(d.loop, d.whole == 1);
    ck_assert(d.failures.empty());
}
END_TEST

START_TEST(memory_comes_ahead_only_where_it_is_expected_and_before_the_image) {
    Destination d;
    ck_assert(!d.intake.take_precopy(pages_at(0, 1), bytes_of_pages(0, 1)));
    OK(d.intake.expect_precopy(page_bytes));
    OK(d.intake.take_precopy(pages_at(0, 1), bytes_of_pages(0, 1)));
    d.intake.precopy_lost();
    ck_assert(!d.intake.take_precopy(pages_at(0, 1), bytes_of_pages(0, 1)));
    OK(d.intake.expect_precopy(page_bytes));
    d.restore(MoveForm::pages_first, 1);
    ck_assert(!d.intake.take_precopy(pages_at(0, 1), bytes_of_pages(0, 1)));
    Destination cannot(false);
    ck_assert(!cannot.intake.expect_precopy(page_bytes));
}
END_TEST

START_TEST(an_image_that_names_memory_which_is_not_here_any_more_is_refused) {
    Destination d;
    OK(d.intake.expect_precopy(page_bytes));
    OK(d.intake.take_precopy(pages_at(0, 1), bytes_of_pages(0, 1)));
    d.intake.precopy_lost();
    d.name_in_image({pages_at(0, 1)});
    d.intake.expect(MoveForm::pages_first);
    ck_assert(!d.intake.use_precopy(d.image.fd.get()));
    // As a whole image it needs none of it.
    d.intake.expect(MoveForm::stop_and_copy);
    OK(d.intake.use_precopy(d.image.fd.get()));
}
END_TEST

START_TEST(a_page_file_needs_a_machine_that_can_put_memory_in_place) {
    Destination d(false);
    Manifest manifest;
    manifest.files = {{"core-1.img", 1, ""}};
    OK(d.intake.begin(d.image.fd.get(), d.image.fd.get(), manifest));
    ck_assert(d.intake.form() == MoveForm::stop_and_copy);
    manifest.files.push_back({page_file_name, page_bytes, ""});
    const Status refused = d.intake.begin(d.image.fd.get(), d.image.fd.get(), manifest);
    ck_assert(!refused && refused.error().message.find("souk doctor") != std::string::npos);
}
END_TEST

// The capsule of a copy ends while its memory comes out of a file, which takes many turns of the
// loop; or the place itself fails.
START_TEST(nothing_more_comes_out_of_a_page_file_once_the_capsule_is_gone_or_it_has_failed) {
    enum class How { ends, fails, fails_and_ends };
    for (const How how : {How::ends, How::fails, How::fails_and_ends}) {
        constexpr uint64_t pages = 4096;  // 16 slices
        Destination d;
        d.ends_then = how == How::fails_and_ends;
        write_pagemap(d.image.fd.get(), {{pagemap_pid, base, pages}});
        OK(create_file(d.image.fd.get(), page_file_name, std::string(pages * page_bytes, 'x')));
        Manifest manifest;
        manifest.files = {{page_file_name, pages * page_bytes, "not its digest"}};
        for (uint64_t i = 0; i < pages; ++i) d.job.missing.insert(base + i * page_bytes);
        OK(d.intake.begin(d.image.fd.get(), d.image.fd.get(), manifest));
        OK(d.intake.listen(d.image.fd.get()));
        d.job.at_put = [&, n = 0]() mutable {
            if (++n == 6 && how != How::ends) d.job.trouble = "protocol";
        };
        d.intake.restored();
        UNTIL(d.loop, d.job.put > (1 << 20));
        if (how == How::ends) d.intake.end();
        const uint64_t put = d.job.put;
        bool later = false;
        const Timer wait = d.loop.after(Nanos::from_ms(50), [&] { later = true; });
        UNTIL(d.loop, later);
        ck_assert(how == How::ends ? d.job.put == put : d.job.put < 3 << 20);
        ck_assert_uint_eq(d.failures.size(), how == How::ends ? 0 : 1);
        ck_assert_int_eq(d.whole, 0);
    }
}
END_TEST

START_TEST(a_capsule_that_keeps_no_userfaultfd_ends_a_post_copy_and_so_does_trouble_of_criu) {
    Destination d;
    d.restore(MoveForm::post_copy, 1);
    d.job.uffds = {7};
    d.capsule_refuses = "full";
    OK(d.intake.put(pages_at(0, 1), bytes_of_pages(0, 1)));
    ck_assert_uint_eq(d.failures.size(), 1);
    ck_assert(d.failures[0].find("full") != std::string::npos);
    Destination other;
    other.restore(MoveForm::pages_first, 1);
    other.job.trouble = "protocol";
    ck_assert_int_eq(::write(other.job.touched.write_end.get(), "x", 1), 1);
    UNTIL(other.loop, !other.failures.empty());
    ck_assert_text(other.failures[0], "protocol");
    other.intake.end();
    ck_assert(!other.intake.listening());
}
END_TEST

}  // namespace

UNIT_SUITE(page_intake, a_job_of_stop_and_copy_listens_for_nothing,
           pages_first_is_whole_when_the_last_page_is_there_and_the_capsule_keeps_nothing,
           post_copy_may_run_at_once_and_its_userfaultfds_are_kept_until_it_is_whole,
           before_criu_holds_the_job_only_what_it_waits_for_is_asked_for,
           what_was_put_is_acknowledged_each_256_kb,
           what_came_ahead_and_the_image_names_is_put_from_here_and_the_rest_is_asked_for,
           all_that_came_ahead_is_put_without_being_touched,
           nothing_more_comes_out_of_a_page_file_once_the_capsule_is_gone_or_it_has_failed,
           memory_comes_ahead_only_where_it_is_expected_and_before_the_image,
           an_image_that_names_memory_which_is_not_here_any_more_is_refused,
           a_page_file_needs_a_machine_that_can_put_memory_in_place,
           a_capsule_that_keeps_no_userfaultfd_ends_a_post_copy_and_so_does_trouble_of_criu);

}  // namespace souk::unit
