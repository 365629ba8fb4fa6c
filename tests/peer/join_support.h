// SPDX-License-Identifier: Apache-2.0
// A controller that lets nodes join, for the tests of joining.
#pragma once

#include "daemon/runtime/peer/join_client.h"
#include "daemon/runtime/peer/join_service.h"
#include "daemon/runtime/threaded_store.h"
#include "tests/peer/peer_support.h"

namespace infos::test {

/// Node 1: a controller that lets nodes join. Ids are given in the order of joining, from 2.
class Controller {
 public:
  explicit Controller(const Authority& lab, RoleSet roles = {Role::controller, Role::gateway})
      : store_(make_memory_store()) {
    PeerNetOptions options = lab.options(1, roles);
    options.join = [this](JoinRequest request, const std::string& from,
                          PeerNetOptions::JoinDone done) {
      service_->join(std::move(request), from, std::move(done));
    };
    JoinTokens::Options tokens;
    tokens.clock = [] { return Time{}; };  // the limit of attempts never forgets
    tokens.post = [this](std::function<void()> task) {
      boost::asio::post(node_->io(), std::move(task));
    };
    tokens_ = std::make_unique<JoinTokens>(*store_, tokens);
    JoinService::Options service;
    service.authority = lab.credential();
    service.self = lab.identity(1, roles);
    service.admit = [this](const NewMember& member, std::function<void(Result<NodeId>)> done) {
      if (member.name == "taken")
        return done(Error{ErrorCode::already_exists, "node name 'taken' is taken"});
      members_.push_back(member);
      done(NodeId{static_cast<std::uint32_t>(members_.size() + 1)});
    };
    service_ = std::make_unique<JoinService>(*tokens_, service);
    node_ = std::make_unique<TestNode>(std::move(options));
    hash_ = key_hash(lab.certificate()).value();
  }
  ~Controller() { store_.reset(); }  // answers before the loop ends

  JoinTokens::NewToken token(RoleSet roles = {Role::decode}, Duration life = seconds(60)) {
    std::promise<Result<JoinTokens::NewToken>> made;
    node_->with([&](PeerNet&) {
      tokens_->create(roles, life, [&](auto result) { made.set_value(std::move(result)); });
    });
    return made.get_future().get().value();
  }
  JoinWish wish(const std::string& token, const std::string& name = "n2") const {
    JoinWish out;
    out.server = "127.0.0.1:" + std::to_string(node_->port());
    out.token = token;
    out.authority_hash = hash_;
    out.name = name;
    return out;
  }
  TestNode& node() { return *node_; }
  StateStore& store() { return *store_; }
  std::vector<TokenRecord> records() {
    return node_->with([&](PeerNet&) { return tokens_->list(); });
  }
  std::size_t members() {
    return node_->with([&](PeerNet&) { return members_.size(); });
  }

 private:
  std::unique_ptr<TestNode> node_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<JoinTokens> tokens_;
  std::unique_ptr<JoinService> service_;
  std::vector<NewMember> members_;
  std::string hash_;
};

}  // namespace infos::test
