// SPDX-License-Identifier: GPL-2.0-or-later
// The names of a job's components, as the /etc/hosts of each has them.
#include "agentd/core/gang_hosts.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

std::string hosts(std::vector<std::string> env, NetMode net = NetMode::own) {
    JobSpec spec;
    spec.net = net;
    spec.launch.env = std::move(env);
    return hosts_of_gang(spec);
}

}  // namespace

START_TEST(each_component_has_its_number_and_its_label) {
    ck_assert_text(
        hosts({"A=b", "SOUK_HOSTS=10.1.0.5,10.1.0.6,10.1.0.7", "SOUK_NAMES=master,c1,worker-0"}),
        "10.1.0.5 c0 master\n10.1.0.6 c1\n10.1.0.7 c2 worker-0\n");
    ck_assert_text(hosts({"SOUK_HOSTS=10.1.0.5"}), "10.1.0.5 c0\n");
}
END_TEST

START_TEST(who_has_no_siblings_or_no_address_has_no_names) {
    ck_assert_text(hosts({}), "");
    ck_assert_text(hosts({"SOUK_HOSTSX=10.1.0.5", "SOUK_HOSTS="}), "");
    ck_assert_text(hosts({"SOUK_HOSTS=10.1.0.5"}, NetMode::host), "");
}
END_TEST

START_TEST(what_is_no_address_or_no_name_is_passed_over) {
    ck_assert_text(hosts({"SOUK_HOSTS=x,10.1.0.6,,10.1.0.8", "SOUK_NAMES=a,b\nc,d,localhost"}),
                   "10.1.0.6 c1\n10.1.0.8 c3\n");
    std::string many = "SOUK_HOSTS=10.1.0.5";
    for (int i = 0; i < 5'000; ++i) many += ",10.1.0.5";
    const std::string lines = hosts({many});
    ck_assert_int_eq(std::count(lines.begin(), lines.end(), '\n'), 1024);
}
END_TEST

UNIT_SUITE(gang_hosts, each_component_has_its_number_and_its_label,
           who_has_no_siblings_or_no_address_has_no_names,
           what_is_no_address_or_no_name_is_passed_over);
