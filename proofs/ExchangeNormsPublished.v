(* Smaller exchange norms for a table that shows nothing finer than what is published:
   0 if it touches at most one block, otherwise at most q_S^2 + q_S in squared l2 (6 for two blocks,
   12 for three). *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables ExchangeNorms.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

(* If every two members of E share their value of f or their value of g, then all of E share their
   value of f, or all of E share their value of g. *)
Lemma one_relation_is_total (I : finType) (C C' : eqType) (E : {set I}) (f : I -> C) (g : I -> C') :
  (forall i j, i \in E -> j \in E -> (f i == f j) || (g i == g j)) ->
  (forall i j, i \in E -> j \in E -> f i = f j) \/ (forall i j, i \in E -> j \in E -> g i = g j).
Proof.
move=> h; case: (boolP [forall (i | i \in E), forall (j | j \in E), f i == f j]) => [all_f|].
  left=> i j iE jE; have /forallP/(_ i)/implyP/(_ iE) := all_f.
  by move=> /forallP/(_ j)/implyP/(_ jE)/eqP.
rewrite negb_forall => /existsP[i0]; rewrite negb_imply => /andP[i0E].
rewrite negb_forall => /existsP[j0]; rewrite negb_imply => /andP[j0E n0].
have g0 : g i0 = g j0 by have := h i0 j0 i0E j0E; rewrite (negbTE n0) => /eqP.
have all_g i : i \in E -> g i = g i0.
  move=> iE; case: (eqVneq (f i) (f i0)) => [e|n1].
    have := h i j0 iE j0E; rewrite e (negbTE n0) /= => /eqP ->.
    by rewrite g0.
  by have := h i i0 iE i0E; rewrite (negbTE n1) => /eqP.
by right=> i j iE jE; rewrite !all_g.
Qed.

(* The arithmetic of the count of pairs: with q carriers, s ordered pairs that share a cell, s' that
   do not. *)
Lemma pairs_apart q s s' : 1 < q -> s + s' = q * q.-1 -> 2 <= s' -> 2 * q + 2 + s <= q ^ 2 + q.
Proof. by case: q => // q _ /=; rewrite -mulnn; lia. Qed.

Lemma fewer_carriers k q : k < q -> k ^ 2 + k + 2 <= q ^ 2 + q.
Proof.
move=> lt; apply: (@leq_trans (k.+1 ^ 2 + k.+1)); first by rewrite -!mulnn; lia.
by rewrite leq_add // leq_exp2r.
Qed.

Lemma pairs_canceled q s s' cross : 0 < q -> s + s' = q * q.-1 -> (q <= 1) + 1 <= cross ->
  2 * q + 2 + s <= (if q <= 1 then 0 else q ^ 2 + q) + 2 * cross.
Proof. by case: q => // q _ /=; rewrite -mulnn; case: q => [|q] /=; lia. Qed.

Section Published.
Variables (n : nat) (F B V N M : finType) (block : F -> B) (node : F -> V -> N) (label : F -> V -> M).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation inhabited := (@inhabited record B _ tuple_in n).
Local Notation carriers := (@carriers record B _ tuple_in n).
Local Notation exchange := (@exchange n F B V N block node).
Local Notation arises := (@arises n F B V N block node).
Local Notation adjacent := (@adjacent n F B V N block node).
Local Notation touched := (@touched n F B V N block node M label).
Local Notation cell := (@cell F V M label).
Local Notation cells := (@cells n F V M label).
Implicit Types (X Y : dataset) (p i j : 'I_n) (y : record) (b : B) (f : F).

(* The table shows nothing finer than what is published. *)
Hypothesis not_finer : forall f (v w : V), node f v = node f w -> label f v = label f w.

Lemma chains f : on_chain node label f.
Proof. by left; apply: not_finer. Qed.

(* In a block that the table does not touch, all records look alike. *)
Lemma untouched_alike X f i j : block f \notin touched X -> label f (X i f) = label f (X j f).
Proof.
move=> nt; case: (eqVneq (node f (X i f)) (node f (X j f))) => [/not_finer //|ne].
apply/eqP; apply: contraNT nt => nl; apply/touchedP; exists f, i, j.
by split=> //; apply/eqP.
Qed.

Section OneExchange.
Variables (X : dataset) (p : 'I_n) (y : record) (c : {ffun B -> 'I_n}).
Hypotheses (hy : inhabited X y) (hc : carriers X p y c).
Let Y := exchange X p y c.
Let E := seen_carriers block node label X p y c.
Let q := #|touched X|.

Lemma untouched_target f i : block f \notin touched X -> label f (X i f) = label f (y f).
Proof.
move=> nt; have /inhabitedP/(_ (block f))[j /eqP/tuple_inP/(_ f erefl) e] := hy.
by rewrite (untouched_alike i j nt); apply: not_finer.
Qed.

(* If no carrier is seen, the table does not move. *)
Lemma nothing_seen : E = set0 -> l2_squared (cells X) (cells Y) = 0%R.
Proof.
move=> E0; apply: big1 => v _.
have same i : cells X i = cells Y i.
  case: (eqVneq i p) => [->|ip]; last first.
    by apply: (others_unseen chains hc); rewrite in_setU1 (negbTE ip) -/E E0 inE.
  apply/ffunP=> f; rewrite /ExchangeNorms.cells /ExchangeNorms.cell /Y exchange_person !ffunE.
  case: (eqVneq (node f (X p f)) (node f (y f))) => [/not_finer //|mv].
  apply/eqP; apply: contraT => nl; suff : c (block f) \in E by rewrite E0 inE.
  by apply/imsetP; exists (block f) => //; apply/seen_blocksP; exists f; split=> //; apply/eqP.
rewrite (_ : table (cells Y) v = table (cells X) v) ?subrr //.
by rewrite /table; congr Posz; apply: eq_card => i; rewrite !inE same.
Qed.

Section AllSeen.
Hypothesis all_seen : touched X \subset seen_blocks block node label (X p) y.

(* If all carriers share their cell before, that cell is the person's cell after ... *)
Lemma together_before j : j \in E -> (forall i k, i \in E -> k \in E -> cells X i = cells X k) ->
  cells X j = cells Y p.
Proof.
move=> jE same; rewrite {2}/ExchangeNorms.cells /Y exchange_person; apply/ffunP=> f.
case: (boolP (block f \in touched X)) => [t|nt]; last by rewrite !ffunE; apply: untouched_target.
have s := subsetP all_seen _ t; have cE : c (block f) \in E by apply/imsetP; exists (block f).
rewrite (same _ _ jE cE) !ffunE; apply: not_finer.
exact: carrier_node hc (seen_differ s) erefl.
Qed.

(* ... and if they share it after, it is the person's cell before. *)
Lemma together_after j : j \in E -> (forall i k, i \in E -> k \in E -> cells Y i = cells Y k) ->
  cells X p = cells Y j.
Proof.
move=> jE same; have other k : k \in E -> k != p.
  move=> kE; apply/eqP=> e; move: (person_not_carrier label hc).
  by rewrite -/E -{1}e kE.
apply/ffunP=> f; case: (boolP (block f \in touched X)) => [t|nt]; last first.
  rewrite [LHS]ffunE [RHS]ffunE /Y exchange_other ?other //.
  by case: ifP => // _; apply: untouched_alike.
have s := subsetP all_seen _ t; have cE : c (block f) \in E by apply/imsetP; exists (block f).
rewrite (same _ _ jE cE) [LHS]ffunE [RHS]ffunE /Y exchange_other ?other // eqxx andbT.
case: ifP => // /negbFE/eqP e; apply: not_finer; rewrite e.
by rewrite (carrier_node hc (seen_differ s) erefl).
Qed.
End AllSeen.

Lemma one_exchange :
  (l2_squared (cells X) (cells Y) <= Posz (if q <= 1 then 0 else q ^ 2 + q)%N)%R.
Proof.
have pE : p \notin E := person_not_carrier label hc.
have hD := others_unseen chains hc.
have hp := carrier_apart_from_person chains hc.
have hE := carriers_apart chains hc.
have kS : #|E| <= #|seen_blocks block node label (X p) y| by apply: leq_imset_card.
have sT := seen_touched chains p hy; have kT := subset_leq_card sT.
case: (posnP #|E|) => [/eqP|k0].
  by rewrite cards_eq0 => /eqP/nothing_seen ->.
case: (ltnP #|E| q) => [lt|ge].
  apply: le_trans (star_l2 pE hD hp hE) _; rewrite lez_nat -/E.
  have -> : (q <= 1) = false by apply/negbTE; rewrite -ltnNge (leq_trans _ lt).
  by apply: fewer_carriers.
have all_seen : touched X \subset seen_blocks block node label (X p) y.
  by have /eqP <- : seen_blocks block node label (X p) y == touched X
    by rewrite eqEcard sT -/q (leq_trans ge kS).
have kq : #|E| = q by apply/eqP; rewrite eqn_leq ge (leq_trans kS kT).
rewrite (l2_squared_pairs hD) -/E.
pose together i j := (cells X i == cells X j) || (cells Y i == cells Y j).
have pairs : (\sum_(i in p |: E) \sum_(j in p |: E)
    ((cells X i == cells X j) + (cells Y i == cells Y j)) <=
    2 * #|E| + 2 + \sum_(i in E) \sum_(j in E | j != i) together i j)%N.
  apply: star_pairs => // j i jE iE ji; have := hE j i jE iE ji; rewrite /together.
  by case: (_ == _); case: (_ == _).
have ordered (r : rel 'I_n) i j : i \in E -> j \in E -> i != j ->
    r i j + r j i <= \sum_(k in E) \sum_(l in E | l != k) r k l.
  move=> iE jE ij; have ji : j != i by rewrite eq_sym.
  rewrite (bigD1 i) //= [X in _ <= _ + X](bigD1 j) /=; last by rewrite jE.
  apply: leq_add.
    by rewrite (bigD1 j) /= ?leq_addr // jE.
  apply: leq_trans (leq_addr _ _).
  by rewrite (bigD1 i) /= ?leq_addr // iE.
have number : \sum_(i in E) \sum_(j in E | j != i) together i j
    + \sum_(i in E) \sum_(j in E | j != i) ~~ together i j = q * q.-1.
  rewrite -big_split -kq -sum_nat_const; apply: eq_bigr => i iE; rewrite -big_split /=.
  rewrite (eq_bigr (fun=> 1)); last by move=> j _; case: (together i j).
  rewrite sum1_card (eq_card (_ : _ =i E :\ i)); last by move=> j; rewrite !inE andbC.
  by rewrite (cardsD1 i E) iE.
case: (boolP [exists i, exists j, [&& i \in E, j \in E, i != j & ~~ together i j]]).
  (* two carriers that never share a cell *)
  case/existsP=> i /existsP[j /and4P[iE jE ij nt]].
  have nt' : ~~ together j i by rewrite /together eq_sym (eq_sym (cells Y j)).
  have := ordered (fun k l => ~~ together k l) i j iE jE ij; rewrite nt nt' /= => two.
  have q2 : 1 < q by rewrite -kq; apply/card_gt1P; exists i, j.
  rewrite leqNgt q2 /=.
  rewrite ler_subl_addr -PoszD lez_nat; apply: leq_trans pairs _; rewrite kq.
  by apply: leq_trans (leq_addr _ _); apply: pairs_apart number two.
move=> /existsPn all_together.
(* all carriers share a cell: it is y's cell before, or x's cell after, and cancels *)
have every i j : i \in E -> j \in E -> (cells X i == cells X j) || (cells Y i == cells Y j).
  move=> iE jE; case: (eqVneq i j) => [->|ij]; first by rewrite eqxx.
  have := all_together i; rewrite negb_exists => /forallP/(_ j).
  by rewrite iE jE ij /= negbK.
have /card_gt0P[e eE] := k0.
have cross_pairs : (cells X p == cells Y e) + (cells X e == cells Y p)
    <= \sum_(i in p |: E) \sum_(j in p |: E) (cells X i == cells Y j).
  rewrite big_setU1 //= [X in _ <= _ + X](bigD1 e) //=; apply: leq_add.
    by rewrite big_setU1 //= (bigD1 e) //= addnCA leq_addr.
  by apply: leq_trans (leq_addr _ _); rewrite big_setU1 //= leq_addr.
have alone i k : q <= 1 -> i \in E -> k \in E -> i = k.
  by rewrite -kq => q1 iE kE; apply: (card_le1_eqP q1).
have cross : (q <= 1) + 1 <= \sum_(i in p |: E) \sum_(j in p |: E) (cells X i == cells Y j).
  apply: leq_trans cross_pairs; case: (one_relation_is_total every) => [before|after].
    rewrite (together_before all_seen eE before) eqxx leq_add2r; case q1 : (q <= 1) => //.
    rewrite (together_after all_seen eE) ?eqxx // => i k iE kE.
    by rewrite (alone i k q1 iE kE).
  rewrite (together_after all_seen eE after) eqxx addnC leq_add2l; case q1 : (q <= 1) => //.
  rewrite (together_before all_seen eE) ?eqxx // => i k iE kE.
  by rewrite (alone i k q1 iE kE).
rewrite ler_subl_addr -PoszD lez_nat; apply: leq_trans pairs _; rewrite kq.
by apply: pairs_canceled number cross; rewrite -kq.
Qed.

End OneExchange.

(* EXCHANGE NORM WITHOUT AN UNPUBLISHED PART. If X ~ Y and a table that shows nothing finer than what
   is published touches q_S blocks, the squared l2 distance of the tables is 0 for q_S <= 1 and at
   most q_S^2 + q_S otherwise. *)
Theorem exchange_norm_published X Y (q := #|touched X|) : adjacent X Y ->
  (l2_squared (cells X) (cells Y) <= Posz (if q <= 1 then 0 else q ^ 2 + q)%N)%R.
Proof.
move=> h; case/orP: (h) => /arisesP[p [z [c [hz hc e]]]]; first by rewrite e; apply: one_exchange.
rewrite l2_squared_sym /q (touched_same chains (adjacent_same_totals h)) e.
exact: one_exchange.
Qed.

End Published.
