(* The smallest exchange norm without an unpublished part: a table that touches two blocks moves by at most 4
   in squared l2 if it shows at most two levels of one of them, and 4 is attained. With three levels
   of both the norm is 6, for all totals. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables ExchangeNorms ExchangeNormsPublished.
Require Import ExchangeNormsPublishedAttained.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

(* The arithmetic of the count of pairs, where two carriers share a cell after (or before): what they share
   cancels against the person's other cell. *)
Lemma count_after (s a a1 a2 a3 a4 a5 a6 a7 : nat) : s <= a1 ->
  1 + 1 + (0 + 0 + (0 + 0)) + (0 + 0 + (1 + 1 + (0 + s)) + (0 + 0 + (0 + s + (1 + 1)))) <=
  4 + 2 * (a + (a1 + 1) + (a2 + (a3 + a4) + (a5 + (a6 + a7)))).
Proof. by lia. Qed.

Lemma count_before (s a a1 a2 a3 a4 a5 a6 a7 : nat) : s <= a3 ->
  1 + 1 + (0 + 0 + (0 + 0)) + (0 + 0 + (1 + 1 + (s + 0)) + (0 + 0 + (s + 0 + (1 + 1)))) <=
  4 + 2 * (a + (a1 + a2) + (a3 + (a4 + a5) + (1 + (a6 + a7)))).
Proof. by lia. Qed.

Section TwoLevels.
Variables (n : nat) (F B V N M : finType) (block : F -> B) (node : F -> V -> N) (label : F -> V -> M).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation same_totals := (@same_totals record B _ tuple_in n).
Local Notation inhabited := (@inhabited record B _ tuple_in n).
Local Notation differ := (@differ record B _ tuple_in).
Local Notation carriers := (@carriers record B _ tuple_in n).
Local Notation exchange := (@exchange n F B V N block node).
Local Notation arises := (@arises n F B V N block node).
Local Notation adjacent := (@adjacent n F B V N block node).
Local Notation touched := (@touched n F B V N block node M label).
Local Notation cells := (@cells n F V M label).
Implicit Types (X Y : dataset) (p i j : 'I_n) (r x y : record) (b : B) (f : F).

(* The table shows nothing finer than what is published. *)
Hypothesis not_finer : forall f (v w : V), node f v = node f w -> label f v = label f w.

(* What the table shows of a record's published value in block b, and how many different such levels
   the records of a dataset have. *)
Definition shown b r : {ffun F -> option M} :=
  [ffun f => if block f == b then Some (label f (r f)) else None].
Definition levels X b := #|[set shown b (X i) | i : 'I_n]|.

Lemma shownP b r r' : shown b r = shown b r' <-> (forall f, block f = b -> label f (r f) = label f (r' f)).
Proof.
split=> [/ffunP h f e|h]; first by have := h f; rewrite !ffunE e eqxx => -[].
by apply/ffunP=> f; rewrite !ffunE; case: eqP => // /h ->.
Qed.

Lemma shown_tuple b r r' : tuple_in r b = tuple_in r' b -> shown b r = shown b r'.
Proof. by move=> /eqP/tuple_inP h; apply/shownP=> f /h; apply: not_finer. Qed.

(* The number of levels is a matter of the totals. *)
Lemma levels_same X Y b : same_totals X Y -> levels X b = levels Y b.
Proof.
have sub X' Y' : same_totals X' Y' ->
    [set shown b (X' i) | i : 'I_n] \subset [set shown b (Y' i) | i : 'I_n].
  move=> /same_totalsP h; apply/subsetP=> s /imsetP[i _ ->].
  have : 0 < total tuple_in Y' b (tuple_in (X' i) b).
    by rewrite -h; apply/card_gt0P; exists i; rewrite inE.
  by case/card_gt0P=> k; rewrite inE => /eqP/shown_tuple <-; apply: imset_f.
by move=> h; congr #|pred_of_set _|; apply/eqP; rewrite eqEsubset !sub // same_totals_sym.
Qed.

Lemma two_of_three X b i j k : levels X b <= 2 ->
  shown b (X i) <> shown b (X j) -> shown b (X k) = shown b (X i) \/ shown b (X k) = shown b (X j).
Proof.
move=> two ne; have sub : [set shown b (X i); shown b (X j)] \subset [set shown b (X i) | i : 'I_n].
  by apply/subsetP=> s; rewrite !inE => /orP[]/eqP->; apply: imset_f.
have e : [set shown b (X i); shown b (X j)] = [set shown b (X i) | i : 'I_n].
  by apply/eqP; rewrite eqEcard sub cards2 (_ : shown b (X i) != shown b (X j)) //; apply/eqP.
have : shown b (X k) \in [set shown b (X i); shown b (X j)] by rewrite e; apply: imset_f.
by rewrite !inE => /orP[]/eqP ->; [left|right].
Qed.

Section OneExchange.
Variables (X : dataset) (p : 'I_n) (y : record) (c : {ffun B -> 'I_n}) (b b' : B).
Hypotheses (hy : inhabited X y) (hc : carriers X p y c).
Hypotheses (two_blocks : touched X = [set b; b']) (bb : b != b') (two_levels : levels X b <= 2).
Let Y := exchange X p y c.
Let E := seen_carriers block node label X p y c.

(* Cells are equal if the table shows the same of both blocks. *)
Lemma same_cell_shown i r :
  (forall f, block f \notin touched X -> label f (X i f) = label f (r f)) ->
  shown b (X i) = shown b r -> shown b' (X i) = shown b' r -> cells X i = cell label r.
Proof.
move=> other /shownP h /shownP h'; apply/ffunP=> f; rewrite !ffunE.
case: (boolP (block f \in touched X)) => [|/other //].
by rewrite two_blocks !inE => /orP[]/eqP; [apply: h|apply: h'].
Qed.

Lemma cell_shown r r' b0 : cell label r = cell label r' -> shown b0 r = shown b0 r'.
Proof. by move=> /ffunP h; apply/shownP=> f _; have := h f; rewrite !ffunE. Qed.

Lemma untouched_after i f : block f \notin touched X -> label f (X p f) = label f (Y i f).
Proof.
move=> nt; rewrite /Y; case: (eqVneq i p) => [->|ip].
  by rewrite exchange_person; exact: (untouched_target not_finer hy _ nt).
rewrite exchange_other //; case: ifP => // _; exact: (untouched_alike not_finer _ _ nt).
Qed.

Lemma exchange_two_levels : (l2_squared (cells X) (cells Y) <= Posz 4)%R.
Proof.
have chains := chains not_finer.
have pE : p \notin E := person_not_carrier label hc.
have hD := others_unseen chains hc.
have hp := carrier_apart_from_person chains hc.
have hE := carriers_apart chains hc.
have kS : #|E| <= #|seen_blocks block node label (X p) y| by apply: leq_imset_card.
have sT := seen_touched chains p hy; have kT := subset_leq_card sT.
have t2 : #|touched X| = 2 by rewrite two_blocks cards2 bb.
case: (ltnP #|E| 2) => [lt|ge].
  apply: le_trans (star_l2 pE hD hp hE) _; rewrite lez_nat -/E.
  by move: lt; case: #|E| => [|[|k]].
have all_seen : seen_blocks block node label (X p) y = [set b; b'].
  by rewrite -two_blocks; apply/eqP; rewrite eqEcard sT t2 (leq_trans ge kS).
have bs : b \in seen_blocks block node label (X p) y by rewrite all_seen !inE eqxx.
have bs' : b' \in seen_blocks block node label (X p) y by rewrite all_seen !inE eqxx orbT.
pose j := c b; pose j' := c b'.
have EE : E = [set j; j'] by rewrite /E /seen_carriers all_seen imsetU1 imset_set1.
have jj : j != j' by apply: contraTneq ge => e; rewrite EE e setUid cards1.
have jE : j \in E by rewrite EE !inE eqxx.
have jE' : j' \in E by rewrite EE !inE eqxx orbT.
have jp : j != p by apply: contraNneq pE => <-.
have jp' : j' != p by apply: contraNneq pE => <-.
(* what carriers show before and after *)
have before d : d \in seen_blocks block node label (X p) y -> shown d (X (c d)) = shown d y.
  move=> ds; apply/shownP=> f e; apply: not_finer.
  exact: carrier_node hc (seen_differ ds) e.
have after d : d \in seen_blocks block node label (X p) y -> shown d (Y (c d)) = shown d (X p).
  move=> ds; have dp : c d != p by rewrite (carrier_other hc (seen_differ ds)).
  apply/shownP=> f e; rewrite /Y exchange_other // e eqxx andbT; case: ifP => // /negbFE/eqP h.
  by apply: not_finer; rewrite h; apply: carrier_node hc (seen_differ ds) e.
have kept : shown b (Y j') = shown b (X j').
  by apply/shownP=> f e; rewrite /Y exchange_other // e (negbTE jj) andbF.
have changes : shown b (X p) <> shown b y.
  move: bs => /seen_blocksP[f [e _ k]] /shownP/(_ f e); exact: k.
have hj := hp j jE; have hj' := hp j' jE'.
move: hj hj' => /andP[/negbTE n1 /negbTE n2] /andP[/negbTE n3 /negbTE n4].
have three (h : 'I_n -> nat) : \sum_(i in p |: [set j; j']) h i = h p + (h j + h j').
  rewrite big_setU1 ?big_setU1 ?big_set1 //=; first by rewrite inE.
  by rewrite !inE !negb_or ![p == _]eq_sym jp jp'.
rewrite (l2_squared_pairs hD) -/E EE -/Y ler_subl_addr -PoszD lez_nat !three !eqxx.
rewrite ![_ == cells X p]eq_sym ![_ == cells Y p]eq_sym n1 n2 n3 n4.
have first_level : shown b (X j') = shown b (X p) -> cells X p = cells Y j'.
  move=> e; apply: same_cell_shown; [by move=> f; apply: untouched_after|by rewrite kept|exact/esym/after].
have second_level : shown b (X j') = shown b y -> cells X j' = cells Y p.
  move=> e; rewrite /ExchangeNorms.cells /Y exchange_person; apply: same_cell_shown => //; last exact: before.
  by move=> f nt; exact: (untouched_target not_finer hy _ nt).
have split_first : shown b (X j) = shown b y := before b bs.
have split_after : shown b (Y j) = shown b (X p) := after b bs.
case: (two_of_three (i := p) (j := j) j' two_levels) => [|e|]; first by rewrite split_first.
- (* the second carrier shows the person's level: after, it is in the person's old cell *)
  have ne : (cells X j == cells X j') = false.
    by apply/eqP=> /cell_shown h; apply: changes; rewrite -e -split_first h.
  have here : cells X p == cells Y j' by apply/eqP; apply: first_level.
  rewrite ne [cells X j' == _]eq_sym ne here [cells Y j' == _]eq_sym.
  by apply: count_after; case: (cells Y j =P cells Y j') => [->|//]; rewrite here.
(* or it shows y's level: before, it is in the person's new cell *)
rewrite split_first => e.
have ne : (cells Y j == cells Y j') = false.
  by apply/eqP=> /cell_shown h; apply: changes; rewrite -split_after h kept e.
have here : cells Y p == cells X j' by apply/eqP; rewrite second_level.
rewrite ne [cells Y j' == _]eq_sym ne here [cells X j' == _]eq_sym.
by apply: count_before; case: (cells X j =P cells X j') => [->|//]; rewrite here.
Qed.
End OneExchange.

(* EXCHANGE NORM 4. If X ~ Y, a table that shows nothing finer than what is published touches two blocks,
   and it shows at most two levels of one of them, the squared l2 distance of the tables is at most 4. *)
Theorem exchange_norm_two_levels X Y b b' : adjacent X Y -> touched X = [set b; b'] -> b != b' ->
  levels X b <= 2 -> (l2_squared (cells X) (cells Y) <= Posz 4)%R.
Proof.
move=> h tX bb two; have same := adjacent_same_totals h.
case/orP: (h) => /arisesP[p [y [c [hy hc e]]]]; first by rewrite e; apply: exchange_two_levels tX bb two.
rewrite l2_squared_sym e; apply: (exchange_two_levels hy hc) bb _; last by rewrite -(levels_same _ same).
by rewrite -tX (touched_same (chains not_finer) same).
Qed.

End TwoLevels.

Section ThreeLevels.
Variables (n : nat) (F B V N M : finType) (block : F -> B) (node : F -> V -> N) (label : F -> V -> M).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation same_totals := (@same_totals record B _ tuple_in n).
Local Notation carriers := (@carriers record B _ tuple_in n).
Local Notation exchange := (@exchange n F B V N block node).
Local Notation adjacent := (@adjacent n F B V N block node).
Local Notation touched := (@touched n F B V N block node M label).
Local Notation cells := (@cells n F V M label).
Local Notation levels := (@levels n F B V M block label).
Local Notation shown := (@shown F B V M block label).
Implicit Types (X Y : dataset) (p i j k : 'I_n) (r y : record) (b : B) (f : F).
Hypothesis not_finer : forall f (v w : V), node f v = node f w -> label f v = label f w.

Lemma three_records X b : 2 < levels X b -> exists i1 i2 i3,
  [/\ shown b (X i1) != shown b (X i2), shown b (X i2) != shown b (X i3) & shown b (X i3) != shown b (X i1)].
Proof.
case/card_gt2P=> [s1 [s2 [s3 [[/imsetP[i1 _ e1] /imsetP[i2 _ e2] /imsetP[i3 _ e3]] d]]]].
by exists i1, i2, i3; rewrite -e1 -e2 -e3.
Qed.

Lemma permutation_of_three i1 i2 i3 k1 k2 k3 : i1 != i2 -> i2 != i3 -> i3 != i1 ->
  k1 != k2 -> k2 != k3 -> k3 != k1 -> exists s : {perm 'I_n}, [/\ s i1 = k1, s i2 = k2 & s i3 = k3].
Proof.
move=> i12 i23 i31 k12 k23 k31; pose s1 := tperm i1 k1; pose s2 := (s1 * tperm (s1 i2) k2)%g.
have e1 : s2 i1 = k1.
  rewrite permM /s1 tpermL tpermD //; last by rewrite eq_sym.
  by rewrite -[X in _ != X](tpermL i1 k1) (inj_eq perm_inj) eq_sym.
have e2 : s2 i2 = k2 by rewrite permM tpermL.
have T x : (s2 * tperm (s2 i3) k3)%g x = tperm (s2 i3) k3 (s2 x) by rewrite permM.
exists (s2 * tperm (s2 i3) k3)%g; rewrite !T e1 e2 tpermL; split=> //.
  by rewrite tpermD // -e1 (inj_eq perm_inj).
rewrite tpermD //; last by rewrite eq_sym.
by rewrite -[X in _ != X]e2 (inj_eq perm_inj) eq_sym.
Qed.

(* THREE LEVELS OF BOTH. The condition of [exchange_norm_two_levels] is exact: if a table touches exactly two
   blocks and shows at least three levels of both, some datasets with the same totals are an exchange
   apart, and their tables differ by exactly 6 in squared l2. *)
Theorem three_levels_attain_6 X0 b b' : touched X0 = [set b; b'] -> b != b' -> 2 < levels X0 b ->
  2 < levels X0 b' -> exists X Y, [/\ same_totals X0 X, adjacent X Y
    & l2_squared (cells X) (cells Y) = Posz 6].
Proof.
move=> tX bb /three_records[p [i2 [i3 [d12 d23 d31]]]] /three_records[k1 [k2 [k3 [e12 e23 e31]]]].
have neq b0 i j : shown b0 (X0 i) != shown b0 (X0 j) -> i != j by apply: contraNneq => ->.
have [s [s1 s2 s3]] := permutation_of_three (neq _ _ _ d12) (neq _ _ _ d23) (neq _ _ _ d31)
  (neq _ _ _ e12) (neq _ _ _ e23) (neq _ _ _ e31).
pose X : dataset := [ffun i => [ffun f => if block f == b' then X0 (s i) f else X0 i f]].
have shown_X b0 i : shown b0 (X i) = shown b0 (X0 ((if b0 == b' then s else 1%g) i)).
  apply/shownP=> f <-; rewrite !ffunE; by case: (block f == b'); rewrite ?perm1.
have hX : same_totals X0 X.
  apply: (@rearranged_totals _ _ _ _ _ _ _ (fun b0 => if b0 == b' then s else 1%g)) => i b0.
  apply/eqP/tuple_inP=> f <-; rewrite !ffunE; by case: (block f == b'); rewrite ?perm1.
pose y : record := [ffun f => if block f == b then X i2 f else if block f == b' then X i3 f else X p f].
pose c : {ffun B -> 'I_n} := [ffun b0 => if b0 == b then i2 else i3].
have hc : carriers X p y c.
  apply/carriersP=> b0 d; apply/eqP/tuple_inP=> f e; rewrite [y f]ffunE e [c b0]ffunE.
  case: (eqVneq b0 b) => // nb; case: (eqVneq b0 b') => // nb'.
  move: d; rewrite inE => /negP; case; apply/tuple_inP=> f' e'.
  by rewrite [y f']ffunE e' (negbTE nb) (negbTE nb').
pose Y := exchange X p y c.
exists X, Y; split=> //.
  by apply/orP; left; apply/arisesP; exists p, y, c; split=> //; apply: carriers_inhabited hc.
(* what the table shows of the three records, before and after *)
have [p2 p3] : i2 != p /\ i3 != p by rewrite eq_sym (neq _ _ _ d12) (neq _ _ _ d31).
have n23 := neq _ _ _ d23.
have Xb i : shown b (X i) = shown b (X0 i) by rewrite shown_X (negbTE bb) perm1.
have Xb' i : shown b' (X i) = shown b' (X0 (s i)) by rewrite shown_X eqxx.
have yb : shown b y = shown b (X i2) by apply/shownP=> f e; rewrite ffunE e eqxx.
have yb' : shown b' y = shown b' (X i3).
  by apply/shownP=> f e; rewrite ffunE e [b' == b]eq_sym (negbTE bb) eqxx.
have ab : shown b (X p) != shown b y by rewrite yb !Xb.
have ab' : shown b' (X p) != shown b' y by rewrite yb' !Xb' s1 s3 eq_sym.
have differs b0 : shown b0 (X p) != shown b0 y -> b0 \in differ tuple_in (X p) y.
  by rewrite inE; apply: contraNN => /eqP e; apply/eqP; apply: shown_tuple not_finer _ _ _ e.
have taken b0 i : i != p -> c b0 = i -> b0 \in differ tuple_in (X p) y -> shown b0 (Y i) = shown b0 (X p).
  move=> ip ci d; apply/shownP=> f e; rewrite /Y exchange_other // e ci eqxx andbT.
  case: ifP => // /negbFE/eqP h; apply: not_finer; rewrite h -ci.
  exact: carrier_node hc d e.
have kept b0 i : i != p -> c b0 != i -> shown b0 (Y i) = shown b0 (X i).
  by move=> ip ci; apply/shownP=> f e; rewrite /Y exchange_other // e (negbTE ci) andbF.
have cb : c b = i2 by rewrite ffunE eqxx.
have cb' : c b' = i3 by rewrite ffunE eq_sym (negbTE bb).
have apart (r r' : record) b0 : shown b0 r != shown b0 r' -> (cell label r == cell label r') = false.
  move=> ne; apply: contraNF ne => /eqP/ffunP h; apply/eqP/shownP=> f _.
  by have := h f; rewrite !ffunE.
have Yp : Y p = y by apply: exchange_person.
have Y2 : shown b (Y i2) = shown b (X p) by apply: taken (differs _ ab).
have Y2' : shown b' (Y i2) = shown b' (X i2) by apply: kept; rewrite // cb' eq_sym.
have Y3 : shown b (Y i3) = shown b (X i3) by apply: kept; rewrite // cb.
have Y3' : shown b' (Y i3) = shown b' (X p) by apply: taken (differs _ ab').
have same i : i \notin p |: [set i2; i3] -> cells X i = cells Y i.
  rewrite !inE !negb_or => /and3P[ip i_2 i_3]; congr cell.
  apply/ffunP=> f; rewrite /Y exchange_other // [c _]ffunE; case: ifP => // /andP[_].
  by case: ifP => _; rewrite eq_sym ?(negbTE i_2) ?(negbTE i_3).
have three (h : 'I_n -> nat) : \sum_(i in p |: [set i2; i3]) h i = h p + (h i2 + h i3).
  rewrite big_setU1 ?big_setU1 ?big_set1 //=; first by rewrite inE.
  by rewrite !inE !negb_or ![p == _]eq_sym p2 p3.
rewrite (l2_squared_pairs same) !three !eqxx /ExchangeNorms.cells Yp.
have f1 := apart (X p) (X i2) b; have f2 := apart (X p) (X i3) b; have f3 := apart (X i2) (X i3) b.
have g1 := apart y (Y i2) b; have g2 := apart y (Y i3) b; have g3 := apart (Y i2) (Y i3) b.
have c1 := apart (X p) y b; have c2 := apart (X p) (Y i2) b'; have c3 := apart (X p) (Y i3) b.
have c4 := apart (X i2) y b'; have c5 := apart (X i2) (Y i2) b; have c6 := apart (X i2) (Y i3) b.
have c7 := apart (X i3) y b; have c8 := apart (X i3) (Y i2) b; have c9 := apart (X i3) (Y i3) b'.
rewrite yb Y2 Y3 !Xb in f1 f2 f3 g1 g2 g3 c1 c3 c5 c6 c7 c8.
rewrite yb' Y2' Y3' !Xb' s1 s2 s3 in c2 c4 c9.
have d21 := d12; have d32 := d23; have d13 := d31; rewrite eq_sym in d21; rewrite eq_sym in d32; rewrite eq_sym in d13.
rewrite ![cell label (X i2) == cell label (X p)]eq_sym ![cell label (X i3) == cell label (X p)]eq_sym.
rewrite ![cell label (X i3) == cell label (X i2)]eq_sym ![cell label (Y i2) == cell label y]eq_sym.
rewrite ![cell label (Y i3) == cell label y]eq_sym ![cell label (Y i3) == cell label (Y i2)]eq_sym.
rewrite (f1 d12) (f2 d13) (f3 d23) (g1 d21) (g2 d23) (g3 d13) (c1 d12) (c2 e12) (c3 d13).
by rewrite (c4 e23) (c5 d21) (c6 d23) (c7 d32) (c8 d31) (c9 e31).
Qed.
End ThreeLevels.

(* TWO LEVELS ATTAIN 4. With two levels each, the records 00, 11 become 01, 10. *)
Theorem two_levels_attain_4 : exists X Y : dataset (record bool_finType bool_finType) 2,
  adjacent (@alone _) (@leaf _ _) X Y /\
  l2_squared (cells (@leaf _ _) X) (cells (@leaf _ _) Y) = Posz 4.
Proof.
apply: (@example bool_finType bool_finType [:: false; true] 1
  (fun i _ => i == 1) (fun f => f) (fun=> 1)).
- by case.
- by [].
- by [].
Qed.
