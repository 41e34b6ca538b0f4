// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "kernel/base/rng.hpp"
#include "market/sim/files.hpp"
#include "market/sim/swf.hpp"
#include "tests/unit/sim_traces.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::sim;

namespace {

const std::string good =
    "; MaxProcs: 128 (batch)\n; Note: anything\n\n"
    "  1  0 -1 10 2 9.5 -1 4 60 -1 1 7 1 -1 1 -1 -1 -1\n"
    "2\t5 0 -1 -1 -1 100 -1 -1 200 5 -1 -1 -1 -1 -1 -1 -1\n";

std::string error_of(std::string_view text) {
    const auto trace = parse_swf(text);
    return trace ? "no error" : trace.error().message;
}

// A line whose field (from 1) is `word`, the others fine.
std::string line_with(int field, const std::string& word) {
    const char* fields[] = {"3",  "0", "-1", "10", "2",  "9.5", "-1", "4",  "60",
                            "-1", "1", "7",  "1",  "-1", "1",   "-1", "-1", "-1"};
    std::string out;
    for (int i = 0; i < 18; ++i)
        out += (i ? " " : "") + (i + 1 == field ? word : std::string(fields[i]));
    return out + "\n";
}

bool same(const SwfTrace& a, const SwfTrace& b) {
    if (a.max_procs != b.max_procs || a.jobs.size() != b.jobs.size()) return false;
    for (size_t i = 0; i < a.jobs.size(); ++i) {
        const SwfJob &x = a.jobs[i], &y = b.jobs[i];
        if (x.id != y.id || x.submit_s != y.submit_s || x.run_s != y.run_s ||
            x.allocated != y.allocated || x.requested != y.requested ||
            x.requested_s != y.requested_s || x.user != y.user || x.line != y.line)
            return false;
    }
    return true;
}

std::string gzip(const std::string& text) {
    z_stream z{};
    deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&z, text.size()), '\0');
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    z.avail_in = static_cast<uInt>(text.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    deflate(&z, Z_FINISH);
    out.resize(z.total_out);
    deflateEnd(&z);
    return out;
}

}  // namespace

START_TEST(a_job_line_keeps_its_fields_and_unknown_stays_minus_one) {
    const auto trace = parse_swf(good);
    ck_assert_msg(trace.has_value(), "%s", error_of(good).c_str());
    ck_assert_int_eq(trace->max_procs, 128);
    ck_assert_uint_eq(trace->jobs.size(), 2);
    const SwfJob& a = trace->jobs[0];
    ck_assert(a.id == 1 && a.submit_s == 0 && a.run_s == 10 && a.allocated == 2 &&
              a.requested == 4 && a.requested_s == 60);
    ck_assert(a.user == 7 && a.used_kb == -1 && a.line == 4);
    const SwfJob& b = trace->jobs[1];
    ck_assert(b.id == 2 && b.submit_s == 5 && b.run_s == -1 && b.used_kb == 100 &&
              b.requested_kb == 200);
}
END_TEST

START_TEST(an_unknown_submit_time_is_kept_as_unknown) {
    const auto trace = parse_swf(good + line_with(2, "-1"));
    ck_assert_msg(trace.has_value(), "%s", trace ? "" : trace.error().message.c_str());
    ck_assert(trace->jobs.size() == 3 && trace->jobs[2].submit_s == -1);
}
END_TEST

START_TEST(crlf_lines_and_a_missing_last_newline_read_the_same) {
    std::string crlf;
    for (char c : good) crlf += c == '\n' ? "\r\n" : std::string(1, c);
    ck_assert(same(*parse_swf(good), *parse_swf(crlf)));
    ck_assert(
        same(*parse_swf(good), *parse_swf(std::string_view(good).substr(0, good.size() - 1))));
}
END_TEST

START_TEST(pieces_of_any_size_read_the_same_as_the_whole) {
    std::string text = good;
    for (int i = 10; i < 60; ++i) text += line_with(1, std::to_string(i));
    const SwfTrace whole = *parse_swf(text);
    Rng rng(7);
    for (int round = 0; round < 200; ++round) {
        SwfParser parser;
        for (size_t at = 0; at < text.size();) {
            const size_t n = std::min<size_t>(1 + rng.below(round + 1), text.size() - at);
            ck_assert(parser.feed(std::string_view(text).substr(at, n)).has_value());
            at += n;
        }
        ck_assert(same(whole, *parser.finish()));
    }
}
END_TEST

START_TEST(an_error_names_line_field_and_why) {
    ck_assert_text(error_of(good + "3 0 1 2\n"), "line 6: has 4 fields, a job has 18");
    ck_assert_text(error_of(good + "3 0 1 2"), "line 6: has 4 fields, a job has 18");
    ck_assert_text(error_of(line_with(18, "-1 5")),
                   "line 1: has more than 18 fields, a job has 18");
    ck_assert_text(error_of(line_with(4, "-5")),
                   "line 1: field 4 (run time): '-5' is negative, only -1 (unknown) may be");
    ck_assert_text(error_of(line_with(1, "-1")),
                   "line 1: field 1 (job number): '-1' is negative, every job needs one");
    ck_assert_text(error_of(line_with(2, "-2")),
                   "line 1: field 2 (submit time): '-2' is negative, only -1 (unknown) may be");
    ck_assert_text(error_of(line_with(8, "four")),
                   "line 1: field 8 (requested processors): 'four' is not a number");
    ck_assert_text(error_of(line_with(8, "4x")),
                   "line 1: field 8 (requested processors): '4x' is not a number");
    ck_assert_text(error_of(line_with(8, "-")),
                   "line 1: field 8 (requested processors): '-' is not a number");
    ck_assert_text(error_of(line_with(17, "0x1")),
                   "line 1: field 17 (preceding job): '0x1' is not a number");
    ck_assert_text(
        error_of(line_with(8, "1.5")),
        "line 1: field 8 (requested processors): '1.5' has a fraction, an integer is needed");
    ck_assert_text(error_of(line_with(5, "2147483648")),
                   "line 1: field 5 (allocated processors): '2147483648' is out of range (at most "
                   "2147483647)");
    ck_assert_text(error_of(line_with(2, "99999999999999999999999")),
                   "line 1: field 2 (submit time): '99999999999999999999999' is out of range (at "
                   "most 1000000000000)");
    ck_assert_text(
        error_of(line_with(4, "-99999999999999999999")),
        "line 1: field 4 (run time): '-99999999999999999999' is out of range (at most 2147483647)");
    ck_assert_text(error_of(line_with(4, std::string("1\0", 2))),
                   "line 1: field 4 (run time): '1?' is not a number");
}
END_TEST

START_TEST(seconds_and_kilobytes_with_a_fraction_are_rounded) {
    const auto run = [](const char* text) { return parse_swf(line_with(4, text))->jobs[0].run_s; };
    ck_assert_int_eq(run("10.25"), 10);
    ck_assert_int_eq(run("10.5"), 11);
    ck_assert_int_eq(run("0.49"), 0);
    ck_assert_int_eq(run("-1.0"), -1);
    ck_assert_int_eq(parse_swf(line_with(2, "7.75"))->jobs[0].submit_s, 8);
    ck_assert_int_eq(parse_swf(line_with(7, "99.9"))->jobs[0].used_kb, 100);
    ck_assert_text(error_of(line_with(4, "99999999999999999999.9")),
                   "line 1: field 4 (run time): '99999999999999999999.9' is out of range (at most "
                   "2147483647)");
}
END_TEST

START_TEST(a_job_in_parts_counts_once_as_the_line_of_all_or_else_as_its_parts_together) {
    const char* const parts =
        "1 0 10 300 8 -1 -1 8 600 -1 1 1 1 -1 1 -1 -1 -1\n"
        "1 0 10 100 8 -1 -1 8 600 -1 2 1 1 -1 1 -1 -1 -1\n"
        "1 -1 50 200 8 -1 -1 8 600 -1 3 1 1 -1 1 -1 -1 -1\n"
        "3 40 0 70 4 -1 -1 4 600 -1 2 1 1 -1 1 -1 -1 -1\n"
        "2 5 0 100 8 -1 -1 8 600 -1 1 1 1 -1 1 -1 -1 -1\n"
        "3 -1 9 30 4 -1 -1 4 600 -1 4 1 1 -1 1 -1 -1 -1\n";
    const auto trace = parse_swf(parts);
    ck_assert(trace.has_value());
    ck_assert_uint_eq(trace->jobs.size(), 3);
    ck_assert_int_eq(trace->jobs[0].run_s, 300);
    ck_assert_int_eq(trace->jobs[1].id, 2);
    ck_assert_int_eq(trace->jobs[2].id, 3);
    ck_assert_int_eq(trace->jobs[2].run_s, 100);
    ck_assert_int_eq(trace->jobs[2].submit_s, 40);
    ck_assert_int_eq(trace->jobs[2].allocated, 4);
}
END_TEST

START_TEST(a_duplicate_id_names_both_lines) {
    ck_assert_text(error_of(good + line_with(1, "9") + line_with(1, "2")),
                   "line 7: field 1 (job number): 2 is the job of line 5 again");
    // unsorted is fine
    ck_assert_text(error_of(good + line_with(1, "9") + line_with(1, "3")), "no error");
}
END_TEST

START_TEST(a_text_without_jobs_is_refused) {
    ck_assert_text(error_of(""), "is empty");
    ck_assert_text(error_of("; MaxProcs: 3\n\n"), "has no job in its 2 lines");
}
END_TEST

START_TEST(a_line_without_end_is_refused_before_it_fills_memory) {
    SwfParser parser;
    const std::string blanks(40'000, ' ');
    ck_assert(parser.feed(blanks).has_value());
    ck_assert(!parser.feed(blanks).has_value());
}
END_TEST

START_TEST(gzip_members_read_as_the_text_and_damage_is_named) {
    const unit::TempDir dir;
    const std::string zipped = gzip(good);
    ck_assert(same(*parse_swf(good), *read_swf(dir.write("a.gz", zipped))));
    ck_assert(same(*parse_swf(good + line_with(1, "3")),
                   *read_swf(dir.write("b.gz", zipped + gzip(line_with(1, "3"))))));
    for (size_t cut : {size_t{3}, zipped.size() / 2, zipped.size() - 4}) {
        const std::string path = dir.write("cut.gz", zipped.substr(0, cut));
        const auto trace = read_swf(path);
        ck_assert(!trace.has_value());
        ck_assert_msg(trace.error().message.starts_with(path + ": truncated gzip stream"), "%s",
                      trace.error().message.c_str());
    }
    std::string damaged = zipped;
    damaged[zipped.size() / 2] ^= 0x55;
    const auto trace = read_swf(dir.write("bad.gz", damaged));
    ck_assert(!trace.has_value());
    ck_assert_text(read_swf(dir.path + "/none").error().message,
                   dir.path + "/none: open: No such file or directory");
    ck_assert_text(read_swf(dir.write("empty", "")).error().message, dir.path + "/empty: is empty");
}
END_TEST

START_TEST(output_files_appear_together_or_not_at_all) {
    const unit::TempDir dir;
    {
        OutputFiles files;
        ck_assert(files.add(dir.path + "/a", "one").has_value());
        ck_assert(!std::filesystem::exists(dir.path + "/a"));
        ck_assert(!files.add(dir.path + "/none/b", "two").has_value());
    }
    ck_assert(std::filesystem::is_empty(dir.path));
    OutputFiles files;
    ck_assert(files.add(dir.path + "/a", "one").has_value());
    ck_assert(files.add(dir.path + "/b", "two").has_value());
    ck_assert(files.commit().has_value());
    ck_assert_text(*read_text(dir.path + "/a"), "one");
    ck_assert_text(*read_text(dir.path + "/b"), "two");
}
END_TEST

START_TEST(an_output_that_is_a_link_or_no_file_stays_what_it_is) {
    const unit::TempDir dir;
    const std::string pipe = dir.path + "/pipe", link = dir.path + "/link",
                      target = dir.write("target", "old");
    ck_assert(mkfifo(pipe.c_str(), 0600) == 0);
    const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert(reader >= 0);
    std::filesystem::create_symlink(target, link);
    OutputFiles files;
    ck_assert(files.add(pipe, "one").has_value());
    ck_assert(files.add(link, "two").has_value());
    char held[8] = {};
    ck_assert_int_eq(read(reader, held, sizeof held), 0);  // nothing before the commit
    ck_assert(files.commit().has_value());
    ck_assert_int_eq(read(reader, held, sizeof held), 3);
    ck_assert_text(held, "one");
    ck_assert(std::filesystem::is_fifo(pipe) && std::filesystem::is_symlink(link));
    ck_assert_text(*read_text(target), "two");
    const auto refused = files.add(dir.path, "three");
    ck_assert_text(refused ? "taken" : refused.error().message, dir.path + ": is a directory");
    close(reader);
}
END_TEST

START_TEST(every_recorded_trace_reads_with_the_published_number_of_jobs) {
    const auto directory =
        unit::traces_directory("every_recorded_trace_reads_with_the_published_number_of_jobs");
    if (!directory) return;
    const std::pair<const char*, size_t> known[] = {{"ALCF-Theta-2022", 23911},
                                                    {"CEA-Curie-2011-2.1-cln", 312826},
                                                    {"CTC-SP2-1996-3.1-cln", 77222},
                                                    {"DAS2-fs1-2003-1", 40315},
                                                    {"HPC2N-2002-2.2-cln", 202871},
                                                    {"LANL-CM5-1994-4.1-cln", 122060},
                                                    {"LCG-2005-1", 188041},
                                                    {"LLNL-Atlas-2006-2.1-cln", 43778},
                                                    {"NASA-iPSC-1993-3.1-cln", 18239},
                                                    {"OSC-Clust-2000-3.1-cln", 36097},
                                                    {"RICC-2010-2", 447794},
                                                    {"SDSC-BLUE-2000-4.2-cln", 243306},
                                                    {"SDSC-Par-1996-3.1-cln", 32135},
                                                    {"SDSC-SP2-1998-4.2-cln", 59715},
                                                    {"Sandia-Ross-2001-1.1-cln", 57882},
                                                    {"UniLu-Gaia-2014-1", 51987}};
    for (const auto& [name, jobs] : known) {
        const auto trace = read_swf(*directory + "/" + name + ".swf.gz");
        ck_assert_msg(trace.has_value(), "%s", trace ? "" : trace.error().message.c_str());
        ck_assert_uint_eq(trace->jobs.size(), jobs);
    }
}
END_TEST

UNIT_SUITE(sim_swf, seconds_and_kilobytes_with_a_fraction_are_rounded,
           a_job_in_parts_counts_once_as_the_line_of_all_or_else_as_its_parts_together,
           a_job_line_keeps_its_fields_and_unknown_stays_minus_one,
           an_unknown_submit_time_is_kept_as_unknown,
           crlf_lines_and_a_missing_last_newline_read_the_same,
           pieces_of_any_size_read_the_same_as_the_whole, an_error_names_line_field_and_why,
           a_duplicate_id_names_both_lines, a_text_without_jobs_is_refused,
           a_line_without_end_is_refused_before_it_fills_memory,
           gzip_members_read_as_the_text_and_damage_is_named,
           output_files_appear_together_or_not_at_all,
           an_output_that_is_a_link_or_no_file_stays_what_it_is,
           every_recorded_trace_reads_with_the_published_number_of_jobs);
