// SPDX-License-Identifier: Apache-2.0
// UcxTransport: SessionTransport over UCX 1.13. One UCX worker per session, so that a session can
// be torn down without touching another and a fence is the end of its worker.
//
// Gets over RDMA lanes are RMA reads. Everything else is active messages, with rendezvous where UCX
// thinks it pays: RMA over TCP aborts this process when the peer is killed (UCX 1.13), and with
// messages only our own hands write our memory, so a fence and a revoke are local. Rendezvous is
// pinned to the receiver's side for the same reason. UCX's own liveness is a second opinion; the
// side channel's is what counts.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "transports/rdma/devices.h"
#include "transports/rdma/rdma_options.h"
#include "transports/rdma/session_transport.h"

namespace infos {

class UcxTransport final : public SessionTransport {
 public:
  static Result<std::unique_ptr<Transport>> make(const RdmaOptions& options);
  ~UcxTransport() override;

 private:
  using Lanes = RdmaOptions::Lanes;
  /// Message ids. A header goes with each.
  enum Message : unsigned { kGet = 1, kData = 2, kPut = 3, kPutDone = 4, kHello = 5 };
  struct Header {
    std::uint64_t token = 0;  ///< what the receiver gave for this session
    std::uint64_t chunk = 0;  ///< the initiator's name for it
    std::uint64_t grant = 0;
    std::uint64_t remote = 0;  ///< where there is one piece
    std::uint64_t bytes = 0;   ///< of data
    std::uint32_t pieces = 0;  ///< 0: one, in this header; else a table of Spans leads the payload
    std::uint32_t verdict = 0;
  };
  struct Span {
    std::uint64_t remote = 0, bytes = 0;
  };
  /// How far an operation has been handed to UCX.
  struct Walk : Attachment {
    std::size_t piece = 0;
    std::uint64_t offset = 0;
    std::uint32_t open = 0;  ///< chunks or RMA requests without an answer
    Verdict verdict = Verdict::ok;
  };
  /// Part of an operation that travels as one message.
  struct Chunk {
    Op* op = nullptr;
    std::uint64_t bytes = 0;
    std::vector<Piece> pieces;
    std::vector<std::byte> staging;  ///< where pieces are gathered or scattered
    std::vector<Span> table;
    bool with_ucx = false;  ///< a request reads or writes its memory
    bool answered = false;
  };
  struct Link;
  struct Request {
    enum class Kind : std::uint8_t { ask, serve_get, take_data, put, serve_put, reply, rma };
    Link* link = nullptr;
    Kind kind = Kind::ask;
    Header header;
    Op* op = nullptr;
    std::uint64_t chunk = 0;
    GrantId grant;
    std::vector<std::byte> staging;
    std::vector<Span> table;
  };
  struct Link : Attachment {
    ~Link() override;
    UcxTransport* owner = nullptr;
    Session* session = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_ep_h ep = nullptr;
    ucp_listener_h listener = nullptr;
    std::uint64_t our_token = 0, their_token = 0;
    std::string broken;   ///< why, once it is; acted upon outside UCX's callbacks
    bool usable = false;  ///< operations may be handed over
    SideChannel::Clock::time_point usable_by{};
    bool closed = false;
    void* closing = nullptr;
    SideChannel::Clock::time_point closed_at{};
    std::uint64_t next_chunk = 1;
    std::map<std::uint64_t, Chunk> chunks;
    std::deque<Op*> ready;  ///< operations with more to hand over
    std::unordered_set<Request*> requests;
    std::uint32_t rma_open = 0, serves_open = 0;
  };
  struct Slices : Attachment {
    ~Slices() override;
    ucp_context_h context = nullptr;
    std::vector<ucp_mem_h> handles;
  };
  struct Keys : Attachment {
    ~Keys() override;
    std::uint64_t base = 0;        ///< address of the owner's region
    std::uint64_t begin = 0;       ///< of the grant, from base
    std::vector<ucp_rkey_h> keys;  ///< of the slices from the one that holds `begin`
  };
  struct Users : Attachment {
    std::uint32_t active = 0;  ///< serves that touch its memory
  };

  UcxTransport(TransportInfo info, std::unique_ptr<SideChannel> side, Lanes lanes);
  Status open_context(const RdmaOptions& options, const RdmaDevice& device);
  static Link& link_of(Session& session) { return static_cast<Link&>(*session.attachment); }
  static Walk& walk_of(Op& op) { return static_cast<Walk&>(*op.attachment); }

  Status region_begin(Region& region) override;
  void region_end(Region& region) override;
  Status grant_begin(Grant& grant) override;
  std::string grant_blob(const Grant& grant) override;
  void grant_end(Grant& grant) override;
  bool grant_ended(Grant& grant) override;
  Result<std::string> session_half(Session& session) override;
  Status session_begin(Session& session, std::string_view half) override;
  void session_end(Session& session) override;
  bool session_ended(Session& session) override;
  void op_begin(Op& op) override;
  void op_stop(Op& op) override;
  std::size_t poll() override;
  bool arm_backend() override;

  // ucx_session.cc
  Status open_worker(Link& link);
  Status open_listener(Link& link);
  Status open_endpoint(Link& link, ucp_ep_params_t params);
  static void on_error(void* arg, ucp_ep_h ep, ucs_status_t status);
  static void on_connection(ucp_conn_request_h request, void* arg);
  // ucx_messages.cc
  template <unsigned kMessage>
  static ucs_status_t on_message(void* arg, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  Status add_handlers(Link& link);
  void on_get(Link& link, const Header& header, const void* data, std::size_t bytes);
  void on_data(Link& link, const Header& header, void* data, std::size_t bytes, bool rendezvous);
  void on_put(Link& link, const Header& header, void* data, std::size_t bytes, bool rendezvous);
  void on_ucx_hello(Link& link, const Header& header);
  void on_put_done(Link& link, const Header& header);
  void reply(Link& link, Message message, const Header& asked, Verdict verdict);
  bool take_table(Link& link, const Header& header, Access access, std::span<const Span> table);
  void land(Link& link, Request& request, const std::byte* payload);
  void user_of(GrantId grant, int change);
  // ucx_ops.cc
  void hand_over(Link& link);
  void hand_over_chunk(Link& link, Op& op);
  void send_chunk(Link& link, std::uint64_t id, Chunk& chunk);
  bool hand_over_rma(Link& link, Op& op);
  Keys* keys_of(Link& link, Remote& remote);
  bool walk_ended(const Op& op) const;
  void settle(Op& op);
  void end_chunk(Link& link, std::uint64_t id);
  void scatter(const Chunk& chunk, const std::byte* from);
  Request& new_request(Link& link, Request::Kind kind);
  void send(Request& request, Message message, const void* data, std::size_t bytes,
            std::uint32_t flags);
  void receive(Request& request, void* description, void* into, std::size_t bytes);
  void posted(Request& request, ucs_status_ptr_t handle);
  void complete(Request& request, ucs_status_t status);

  Lanes lanes_ = Lanes::local;
  std::string host_;
  ucp_context_h context_ = nullptr;
  std::vector<Link*> links_;
  SideChannel::Clock::time_point polled_ = SideChannel::Clock::now();
};

}  // namespace infos
