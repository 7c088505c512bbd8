(* Rule "reach". Every person can become every y whose published values are inhabited,
   if one more record changes for every block in which the person changes. So a(t) <= q + 1.

   The blocks have to be independent: disjoint sets of features, and no structural zeros that couple
   them. [independent] says so in one line: block values of different records can be combined into
   one record. Flat features, joint blocks and nested features all satisfy it (Features.v). *)
From mathcomp Require Import all_ssreflect fingroup perm.
Require Import Datasets.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Reach.
Variables (R B W : finType) (published : R -> B -> W) (n : nat).
Local Notation dataset := (dataset R n).
Local Notation total := (@total R B W published n).
Local Notation same_totals := (@same_totals R B W published n).
Local Notation possible := (@possible R B W published n).
Local Notation inhabited := (@inhabited R B W published n).
Local Notation active := (@active R B W published n).
Local Notation differ := (@differ R B W published).
Implicit Types (X Y : dataset) (p i j : 'I_n) (x y r : R) (b : B) (c : {ffun B -> 'I_n}).

(* For any choice of a record per block, some record has in every block the value of the record
   chosen for it. *)
Definition independent := forall choice : {ffun B -> R}, exists r,
  [forall b, published r b == published (choice b) b].
Hypothesis blocks_independent : independent.

Definition combine (choice : {ffun B -> R}) : R := xchoose (blocks_independent choice).

Lemma combineE choice b : published (combine choice) b = published (choice b) b.
Proof. by have /forallP/(_ b)/eqP := xchooseP (blocks_independent choice). Qed.

(* c names, for every block in which the person differs from y, a carrier: a record that has y's
   value there. (This is never the person. For other blocks c is not used.) *)
Definition carriers X p y c :=
  [forall (b | b \in differ (X p) y), published (X (c b)) b == published y b].

Lemma carriersP X p y c :
  reflect (forall b, b \in differ (X p) y -> published (X (c b)) b = published y b)
          (carriers X p y c).
Proof.
apply: (iffP forallP) => h b.
  by move=> d; have /implyP/(_ d)/eqP := h b.
by apply/implyP=> d; apply/eqP; apply: h.
Qed.

Lemma carrier_other X p y c b : carriers X p y c -> b \in differ (X p) y -> c b != p.
Proof.
move=> /carriersP h d; apply/eqP=> e; move: (h b d) (d); rewrite e inE => ->.
by rewrite eqxx.
Qed.

(* If every published value of y is inhabited, carriers exist. *)
Lemma carriers_exist X p y : inhabited X y -> exists c, carriers X p y c.
Proof.
move=> /inhabitedP hy; exists [ffun b => odflt p [pick j | published (X j) b == published y b]].
apply/carriersP=> b _; rewrite ffunE; case: pickP => [j /eqP //|none].
by have [j e] := hy b; move: (none j); rewrite e eqxx.
Qed.

(* The person becomes y, and every carrier takes over the person's old values in its blocks. *)
Definition handover X p y c : dataset :=
  [ffun i => if i == p then y
             else if i \in [set c b | b in differ (X p) y] then
               combine [ffun b => if (b \in differ (X p) y) && (c b == i) then X p else X i]
             else X i].

Lemma handover_person X p y c : handover X p y c p = y.
Proof. by rewrite ffunE eqxx. Qed.

(* In each block the person swaps values with the carrier. *)
Lemma handover_published X p y c i b : carriers X p y c ->
  published (handover X p y c i) b =
  published (X ((if b \in differ (X p) y then tperm p (c b) else 1%g) i)) b.
Proof.
move=> hc; rewrite ffunE; case: (eqVneq i p) => [->|ip].
  case: ifP => d; first by rewrite tpermL (carriersP _ _ _ _ hc).
  by rewrite perm1; move: d; rewrite inE => /negbFE/eqP.
have step : (if i \in [set c b' | b' in differ (X p) y] then published (combine
    [ffun b' => if (b' \in differ (X p) y) && (c b' == i) then X p else X i]) b
    else published (X i) b) =
    published (if (b \in differ (X p) y) && (c b == i) then X p else X i) b.
  case: ifP => [_|/negP h]; first by rewrite combineE ffunE.
  by case: ifP => // /andP[d /eqP e]; case: h; apply/imsetP; exists b.
rewrite -[LHS]/(published _ b) (fun_if (fun r => published r b)) step.
case d : (b \in differ (X p) y) => /=; last by rewrite perm1.
case: (eqVneq (c b) i) => [<-|ci]; first by rewrite tpermR.
by rewrite tpermD // eq_sym.
Qed.

Lemma handover_totals X p y c : carriers X p y c -> same_totals X (handover X p y c).
Proof.
move=> hc; apply: (@rearranged_totals _ _ _ _ _ _ _
  (fun b => if b \in differ (X p) y then tperm p (c b) else 1%g)) => i b.
exact: handover_published.
Qed.

(* Only the person and the carriers can change. *)
Lemma handover_changed X p y c :
  changed X (handover X p y c) \subset p |: [set c b | b in differ (X p) y].
Proof.
apply/subsetP=> i; rewrite in_setU1 [i \in changed _ _]inE ffunE; case: (eqVneq i p) => //= ip.
by case: ifP => //; rewrite eqxx.
Qed.

Lemma handover_few X p y c : distance X (handover X p y c) <= #|differ (X p) y| + 1.
Proof.
apply: leq_trans (subset_leq_card (handover_changed X p y c)) _.
by rewrite cardsU1 addnC leq_add ?leq_imset_card ?leq_b1.
Qed.

(* REACH. If every published value of y is inhabited, person p can become exactly y. All totals are
   kept, and at most one other record changes for every block in which the person changes. *)
Theorem reach X p y : inhabited X y ->
  exists Y, [/\ same_totals X Y, Y p = y & distance X Y <= #|differ (X p) y| + 1].
Proof.
move=> hy; have [c hc] := carriers_exist p hy; exists (handover X p y c).
by split; [apply: handover_totals|apply: handover_person|apply: handover_few].
Qed.

(* WHAT IS POSSIBLE. With independent blocks and at least one record, y is possible exactly if all
   its published values have positive totals. This is a statement about t alone. *)
Theorem possible_iff_inhabited X y (p : 'I_n) : possible X y = inhabited X y.
Proof.
apply/idP/idP; first exact: possible_inhabited.
by move=> /(reach p)[Y [h e _]]; apply/possibleP; exists Y, p.
Qed.

(* a(t) <= q + 1, where q is the number of blocks with at least two inhabited values. *)
Theorem semi_adjacency_bound X0 : semi_adjacency published X0 <= #|active X0| + 1.
Proof.
rewrite semi_adjacencyP; apply/sufficesP=> X p y hX hy.
have hy' : inhabited X y by rewrite -(same_inhabited _ hX); apply: possible_inhabited.
have [Y [h e k]] := reach p hy'; exists Y; split=> //; apply: leq_trans k _.
by rewrite leq_add2r (same_active hX) subset_leq_card // differ_active.
Qed.

End Reach.
