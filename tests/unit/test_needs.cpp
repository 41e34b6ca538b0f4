// SPDX-License-Identifier: GPL-2.0-or-later
// Needs of jobs (market/core/needs.hpp) are tested: each operator beside values whose answer is
// written down here, what is refused and where, and expressions drawn at random beside an evaluator
// that works on the drawn tree and not on text.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "kernel/base/rng.hpp"
#include "market/core/needs.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using market::compare_values;
using market::Needs;

namespace {

using Attributes = std::map<std::string, std::string, std::less<>>;

Needs::Lookup of(const Attributes& a) {
    return [&a](std::string_view name) -> std::optional<std::string> {
        const auto it = a.find(name);
        return it == a.end() ? std::nullopt : std::optional(it->second);
    };
}

bool holds(const char* text, const Attributes& a) {
    const auto needs = Needs::parse(text);
    ck_assert_msg(needs.has_value(), "%s: %s", text, needs ? "" : needs.error().message.c_str());
    return needs->holds(of(a));
}

const Attributes node = {{"node", "n7"},       {"arch", "x86_64"}, {"kernel", "6.18.5-amd64"},
                         {"memory", "65536M"}, {"cpus", "16"},     {"gpu.model", "A100 80GB"},
                         {"cpu.avx512f", "1"}, {"gpu", "2"},       {"vendor", "0x41"},
                         {"model", "4090 Ti"}, {"scratch", "no"},  {"os", "Debian"},
                         {"site-b.rack", "12"}};

}  // namespace

START_TEST(an_expression_holds_as_it_reads) {
    for (const char* yes : {"arch = x86_64",
                            "arch = X86_64",
                            "cpu.avx512f",
                            "not cpu.avx2",
                            "memory >= 64G",
                            "memory > 63.9G",
                            "memory <= 64GiB",
                            "kernel >= 6.2",
                            "kernel > 6.18.4",
                            "kernel < 7",
                            "gpu.model = \"A100 80GB\"",
                            "gpu >= 2 and cpus >= 16",
                            "node in [n1, n7]",
                            "not node in [n1,n2]",
                            "not (gpu and cpus < 16)",
                            "arch = arm64 or os = debian",
                            "arch = arm64 or os = debian and gpu",
                            "os != windows",
                            "not scratch",
                            "site-b.rack = 12",
                            "not nothing",
                            "not nothing = 1",
                            "not nothing != 1",
                            "cpus==16"})
        ck_assert_msg(holds(yes, node), "%s", yes);
    for (const char* no :
         {"arch = arm64", "cpu.avx2", "memory >= 65G", "kernel < 6.2", "gpu > 2", "scratch",
          "nothing", "nothing = 1", "nothing != 1", "node in [n70, n]", "os > a",
          "(arch = arm64 or os = debian) and cpus > 16", "not not scratch", "vendor = 0xc0",
          "model = 4090", "model in [4090, 4080]", "kernel = 6.18.5"})
        ck_assert_msg(!holds(no, node), "%s", no);
}
END_TEST

START_TEST(what_is_no_expression_is_refused_at_its_place) {
    const std::pair<const char*, const char*> wrong[] = {
        {"", "at 1: the name of an attribute is wanted, and it ends there"},
        {"cpus >=", "at 8: a value is wanted, and it ends there"},
        {"cpus >= 4 memory", "at 11: 'and', 'or' or the end is wanted, and 'memory' stands there"},
        {"(cpus", "at 6: ')' is wanted, and it ends there"},
        {"node in n1", "at 9: '[' is wanted, and 'n1' stands there"},
        {"node in [n1 n2]", "at 13: ',' or ']' is wanted, and 'n2]' stands there"},
        {"a = \"x", "a quote (\") does not end"},
        {"and", "at 1: the name of an attribute is wanted, and 'and' stands there"},
        {"8 > cpus", "at 1: the name of an attribute is wanted, and '8 > cpus' stands there"}};
    for (const auto& [text, why] : wrong) {
        const auto needs = Needs::parse(text);
        ck_assert_msg(!needs, "%s", text);
        ck_assert_text(needs.error().message, why);
    }
    ck_assert(!Needs::parse(std::string(Needs::text_max + 1, 'a')));
    std::string many = "a";
    for (size_t i = 1; i < Needs::comparisons_max; ++i) many += " or a";
    ck_assert(Needs::parse(many).has_value() && !Needs::parse(many + " or a").has_value());
    std::string deep;
    for (int i = 0; i < 400; ++i) deep += "not ";
    ck_assert(!Needs::parse(deep + "a"));
}
END_TEST

START_TEST(its_parts_tell_which_one_fails) {
    const auto needs = Needs::parse("gpu  and (cpus > 64 or arch = arm64) and not node in [n7]");
    ck_assert(needs.has_value());
    ck_assert(needs->parts() ==
              (std::vector<std::string>{"gpu", "cpus > 64 or arch = arm64", "not node in [n7]"}));
    ck_assert(needs->part_holds(0, of(node)) && !needs->part_holds(1, of(node)) &&
              !needs->part_holds(2, of(node)));
}
END_TEST

START_TEST(values_have_an_order_that_is_the_same_both_ways) {
    const char* const rising[] = {"1", "1.5", "2", "512K", "1M", "1.5M", "1G", "1T"};
    for (const char* a : {"1", "2", "512K", "1M", "1.5M", "1G"})
        for (const char* b : {"1", "2", "512K", "1M", "1.5M", "1G"}) {
            const auto at = [&](const char* x) {
                return std::find_if(std::begin(rising), std::end(rising),
                                    [&](const char* r) { return std::string_view(r) == x; });
            };
            const int wanted = at(a) < at(b) ? -1 : at(a) > at(b) ? 1 : 0;
            ck_assert(compare_values(a, b) == wanted && compare_values(b, a) == -wanted);
        }
    ck_assert(compare_values("6.1", "6.18") == -1 && compare_values("6.1.9", "6.1") == 1);
    ck_assert(!compare_values("a", "b") && compare_values("Ab", "aB") == 0 &&
              !compare_values("4", "four"));
}
END_TEST

namespace {

// A tree drawn at random: its text, and what it is for given flags.
struct Drawn {
    std::string text;
    std::function<bool(uint32_t)> holds;
};

Drawn draw(Rng& rng, int depth) {
    const auto kind = depth == 0 ? 0 : rng.between(0, 3);
    if (kind == 0) {
        const auto flag = static_cast<uint32_t>(rng.between(0, 4));
        return {"f" + std::to_string(flag),
                [flag](uint32_t bits) { return (bits >> flag & 1) != 0; }};
    }
    const Drawn a = draw(rng, depth - 1);
    if (kind == 1) return {"not (" + a.text + ")", [a](uint32_t bits) { return !a.holds(bits); }};
    const Drawn b = draw(rng, depth - 1);
    if (kind == 2)
        return {"(" + a.text + ") and (" + b.text + ")",
                [a, b](uint32_t bits) { return a.holds(bits) && b.holds(bits); }};
    return {"(" + a.text + " or " + b.text + ")",
            [a, b](uint32_t bits) { return a.holds(bits) || b.holds(bits); }};
}

}  // namespace

START_TEST(drawn_expressions_hold_as_their_trees_do) {
    Rng rng(7);
    for (int i = 0; i < 2'000; ++i) {
        const Drawn d = draw(rng, 4);
        const auto needs = Needs::parse(d.text);
        if (d.text.size() > Needs::text_max ||
            std::cmp_greater(std::ranges::count(d.text, 'f'), Needs::comparisons_max))
            continue;
        ck_assert_msg(needs.has_value(), "%s", d.text.c_str());
        for (uint32_t bits = 0; bits < 32; ++bits) {
            Attributes a;
            for (uint32_t f = 0; f < 5; ++f)
                if (bits >> f & 1) a["f" + std::to_string(f)] = "1";
            ck_assert_msg(needs->holds(of(a)) == d.holds(bits), "%s", d.text.c_str());
        }
    }
}
END_TEST

START_TEST(no_text_does_more_than_be_refused) {
    Rng rng(11);
    const std::string signs = "ab.()[]<>=!\",  andornotin9G-";
    for (int i = 0; i < 20'000; ++i) {
        std::string text;
        for (auto n = rng.between(0, 40); n > 0; --n)
            text +=
                signs[static_cast<size_t>(rng.between(0, static_cast<int64_t>(signs.size()) - 1))];
        if (const auto needs = Needs::parse(text)) {
            (void)needs->holds(of(node));
            ck_assert(!needs->parts().empty());
        }
    }
}
END_TEST

UNIT_SUITE(needs, an_expression_holds_as_it_reads, what_is_no_expression_is_refused_at_its_place,
           its_parts_tell_which_one_fails, values_have_an_order_that_is_the_same_both_ways,
           drawn_expressions_hold_as_their_trees_do, no_text_does_more_than_be_refused);
