// SPDX-License-Identifier: GPL-2.0-or-later
// Market: jobs that say what their nodes must be (srun --needs) run on those alone, also after a
// node has become another thing; and attributes as a machine's files tell them.
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "kernel/sys/host/attributes.hpp"
#include "tests/unit/market_world.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::market;

namespace {

Nanos s(int64_t n) { return Nanos::from_s(n); }

void is(World& w, const NodeName& name, std::vector<std::string> attributes) {
    ProviderReport p = w.providers[name];
    p.attributes = std::move(attributes);
    w.set_provider(p);
}

// Each as another user: nobody pays for what he displaces of his own.
JobId submit(World& w, int64_t price, const char* needs) {
    const JobId id = w.submit_as(1'000 + static_cast<uint32_t>(w.jobs.size()), "n1", price);
    w.jobs[id].report.terms.needs = needs;
    w.tell(w.jobs[id]);
    return id;
}

NodeName where(World& w, const JobId& id) {
    return w.phase(id) == JobPhase::running ? w.market->find(id)->record.report.where : "";
}

}  // namespace

START_TEST(what_a_job_needs_bars_the_other_nodes_and_the_failing_part_is_named) {
    World w;
    three_nodes(w);
    is(w, "n2", {"gpu=2", "rack=12"});
    is(w, "n3", {"gpu=1"});
    const JobId any = submit(w, 10, ""), gpu = submit(w, 20, "gpu >= 1"),
                one = submit(w, 20, "gpu = 1 and not node in [n1, n2]"),
                none = submit(w, 90, "memory >= 1K and gpu > 2 and cpus >= 1"),
                both = submit(w, 90, "rack and gpu = 1");
    w.run_for(s(3));
    ck_assert_text(where(w, any), "n1");
    ck_assert_text(where(w, gpu), "n2");
    ck_assert_text(where(w, one), "n3");
    ck_assert(w.market->reason(*w.market->find(none)).code == ReasonCode::needs_nowhere);
    ck_assert_text(w.comment(none), "no node of this market is gpu > 2");
    ck_assert_text(w.comment(both), "no node of this market is rack and gpu = 1, all at once");
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(a_node_that_becomes_another_thing_loses_and_gets_jobs) {
    World w;
    three_nodes(w);
    is(w, "n2", {"licence=yes"});
    const JobId id = submit(w, 20, "licence");
    w.run_for(s(3));
    ck_assert_text(where(w, id), "n2");
    is(w, "n2", {});
    is(w, "n3", {"licence=yes"});
    w.run_for(s(30));
    ck_assert_text(where(w, id), "n3");
    is(w, "n3", {"licence=no"});
    w.run_for(s(30));
    ck_assert(w.phase(id) == JobPhase::frozen);
    is(w, "n1", {"licence=yes"});
    w.run_for(s(30));
    ck_assert_text(where(w, id), "n1");
    // And a job may say otherwise.
    w.jobs[id].report.terms.needs = "node = n3";
    w.tell(w.jobs[id]);
    w.run_for(s(30));
    ck_assert_text(where(w, id), "n3");
}
END_TEST

START_TEST(whoever_needs_one_machine_pays_what_it_displaces_there) {
    World w;
    three_nodes(w);
    const JobId others[] = {submit(w, 30, ""), submit(w, 20, ""), submit(w, 10, "")};
    w.run_for(s(3));
    const JobId only = submit(w, 25, "node = n1");
    w.run_for(s(10));
    ck_assert(w.phase(only) == JobPhase::waiting);  // the best bid stands there
    w.jobs[only].report.terms.max_price = Money::units(31);
    w.tell(w.jobs[only]);
    w.run_for(s(30));
    ck_assert_text(where(w, only), "n1");
    ck_assert(w.phase(others[2]) == JobPhase::frozen);
    const Money price = w.market->find(only)->record.price;
    ck_assert_msg(price > Money::units(10) && price <= Money::units(30), "%s",
                  format_money(price).c_str());
}
END_TEST

START_TEST(a_machine_tells_what_its_files_say) {
    const unit::TempDir dir;
    const auto write = [&](const std::string& path, const std::string& text) {
        const std::string whole = dir.path + path;
        for (size_t at = dir.path.size(); (at = whole.find('/', at + 1)) != std::string::npos;)
            (void)::mkdir(whole.substr(0, at).c_str(), 0755);
        std::ofstream(whole) << text;
    };
    write("/proc/cpuinfo",
          "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon \x1b[31m 6\n"
          "physical id\t: 0\n\nprocessor\t: 1\nmodel name\t: other\nphysical id\t: 1\n");
    write("/proc/meminfo", "MemTotal:       65536000 kB\nMemFree: 1 kB\n");
    write("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
    write("/sys/devices/system/cpu/cpu0/cache/index3/size", "30720K\n");
    write("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA A100\nIRQ: 1\n");
    write("/proc/driver/nvidia/gpus/0000:02:00.0/information", "Model: \t NVIDIA A100\nIRQ: 2\n");
    write("/usr/bin/gcc", "");
    ck_assert_int_eq(::chmod((dir.path + "/usr/bin/gcc").c_str(), 0755), 0);
    write("/usr/bin/notes", "");
    auto found = find_attributes("/", {"gcc", "notes", "R"}, dir.path);
    ck_assert(found.contains("disk"));
    for (const char* name : {"disk", "disk.kind"}) found.erase(name);
    const MachineAttributes wanted = {{"cpu.vendor", "GenuineIntel"}, {"cpu.model", "Xeon  [31m 6"},
                                      {"cpu.sockets", "2"},           {"cpu.cache", "30720K"},
                                      {"memory.total", "65536000K"},  {"os", "debian"},
                                      {"os.version", "12"},           {"gpu", "2"},
                                      {"gpu.vendor", "nvidia"},       {"gpu.model", "NVIDIA A100"},
                                      {"program.gcc", "/usr/bin/gcc"}};
    for (const auto& [name, value] : found)
        ck_assert_text(name + "=" + value,
                       name + "=" + (wanted.contains(name) ? wanted.at(name) : "?"));
    ck_assert(found == wanted);
    // This machine has at least these.
    const auto own = find_attributes("/", {"sh"});
    for (const char* name : {"memory.total", "os", "disk", "program.sh"})
        ck_assert_msg(own.contains(name), "%s", name);
}
END_TEST

UNIT_SUITE(market_needs, what_a_job_needs_bars_the_other_nodes_and_the_failing_part_is_named,
           a_node_that_becomes_another_thing_loses_and_gets_jobs,
           whoever_needs_one_machine_pays_what_it_displaces_there,
           a_machine_tells_what_its_files_say);
